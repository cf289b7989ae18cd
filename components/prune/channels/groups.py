"""The dependency groups of a Keras model: which output channels of which layers live and die together, or must stay.

The idea is that of Fang et al., "DepGraph: Towards Any Structural Pruning" (CVPR 2023); here the groups follow from
labels of single channels, so that concatenations, Flatten and partly shared channels need no offsets of their own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tfopt.components.prune.channels.labels import Book, Channels, Kept, Labels, NotFollowedError
from tfopt.components.prune.channels.propagation import rule_of
from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph


@dataclass(frozen=True)
class Group:
    """Bundles of channels that the same layers make; any of them may go by itself.

    Attributes:
        makers: Names of the layers that make them, with the models these are in.
        members: Names of all layers with weights for them: the makers, batch norms, depthwise convolutions.
        bundles: One label for each bundle.
        frozen: Why none may go; None where they may.
    """

    makers: tuple[str, ...]
    members: tuple[str, ...]
    bundles: Labels
    frozen: str | None

    def facts(self, kept: Kept) -> dict[str, Any]:
        """Return what the report says of it."""
        after = int(kept[self.bundles].sum())
        said = {"members": list(self.members), "before": len(self.bundles), "after": after}
        return said | ({"frozen": self.frozen} if self.frozen else {})


def follow(model: Layer) -> Book:
    """Follow the channels through a model and the models in it.

    Raises:
        ComponentError: When its graph is not known: a subclassed model, or one with a `call` of its own.
    """
    if not is_graph(model):
        raise ComponentError(
            f"{model.name}: {type(model).__name__}, a model with its own call()",
            "a Sequential or Functional model, whose graph says which channels meet",
            "call its layers on a keras.Input and make a keras.Model of it, or choose another pattern",
        )
    book = Book()
    entries = [_unknown(book, tensor, "they are an input of the model") for tensor in model.inputs]
    for channels in _walk(book, model, entries, ""):
        book.freeze(channels.labels, "they are an output of the model")
    return book


def find_groups(book: Book) -> list[Group]:
    """Return the groups, in the order of the graph."""
    roots = book.roots()
    makers: list[set[int]] = [set() for _ in roots]
    members: list[set[int]] = [set() for _ in roots]
    for place, cut in enumerate(book.cuts.values()):
        for root in np.unique(roots[cut.labels]).tolist():
            if cut.role == "makes":
                makers[root].add(place)
            if cut.role != "reads":
                members[root].add(id(cut.layer))
    reasons: dict[int, str] = {}
    for label, reason in book.reasons.items():
        reasons.setdefault(int(roots[label]), reason)
    found: dict[Any, list[int]] = {}
    for root in np.unique(roots).tolist():
        if makers[root]:
            found.setdefault((tuple(sorted(makers[root])), reasons.get(root)), []).append(root)
    cuts = list(book.cuts.values())
    return [
        Group(
            tuple(book.names[id(cuts[place].layer)] for place in made_by),
            tuple(name for key, name in book.names.items() if any(key in members[root] for root in bundles)),
            np.array(bundles, np.int64),
            reason or ("all its channels hang together" if len(bundles) == 1 else None),
        )
        for (made_by, reason), bundles in sorted(found.items(), key=lambda item: item[0][0])
    ]


def _walk(book: Book, model: Layer, entries: list[Channels], path: str) -> list[Channels]:
    """Follow the channels from a model's inputs to its outputs."""
    known = {id(tensor): channels for tensor, channels in zip(model.inputs, entries, strict=True)}
    for call in calls(model):
        name = book.names.setdefault(id(call.layer), path + call.layer.name)
        given = [known[id(tensor)] for tensor in call.inputs]
        try:
            made = _enter(book, call, given, name) if is_graph(call.layer) else _one(book, call, given)
        except NotFollowedError as refusal:
            reason = f"{name!r} ({type(call.layer).__name__}): {refusal}"
            book.abandon(call.layer, reason)
            for channels in given:
                book.freeze(channels.labels, reason)
            made = [_unknown(book, tensor, reason) for tensor in call.outputs]
        known |= {id(tensor): channels for tensor, channels in zip(call.outputs, made, strict=True)}
    return [known[id(tensor)] for tensor in model.outputs]


def _one(book: Book, call: Call, given: list[Channels]) -> list[Channels]:
    if id(call.layer) in book.abandoned:
        raise NotFollowedError("an earlier call of it is not followed")
    rule = rule_of(call.layer)
    if len(call.outputs) != 1:
        raise NotFollowedError("it has several outputs")
    book.followed[id(call.layer)] = call.layer
    return [rule(book, call, given)]


def _enter(book: Book, call: Call, given: list[Channels], name: str) -> list[Channels]:
    """A model in the model; called again, its channels are tied to those of the first call."""
    inner = call.layer
    if len(given) > 1 and any(isinstance(leaf, dict) for leaf in call.args):
        raise NotFollowedError("it takes its inputs by name")
    entries = book.entries.setdefault(id(inner), given)
    for known, channels in zip(entries, given, strict=True):
        if known.axis != channels.axis:
            raise NotFollowedError("its channels are on another axis than in an earlier call")
        book.tie(known.labels, channels.labels)
    return _walk(book, inner, given, f"{name}/")


def _unknown(book: Book, tensor: Any, reason: str) -> Channels:
    rank = len(tensor.shape)
    labels = book.fresh((tensor.shape[-1] if rank > 1 else None) or 1)
    book.freeze(labels, reason)
    return Channels(max(rank - 1, 0), labels)
