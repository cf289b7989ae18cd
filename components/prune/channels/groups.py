"""Groups of channels of a Keras model that are produced by the same layers, and the reasons why some are frozen.

The idea is that of Fang et al., "DepGraph: Towards Any Structural Pruning" (CVPR 2023). Here the groups follow from
labels of single channels, so that concatenations, Flatten and partly shared channels need no offsets.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfopt.components.prune.channels.labels import ChannelGraph, Channels, Labels, Remaining, UnsupportedLayerError
from tfopt.components.prune.channels.propagation import rule_of
from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import Call, Layer, calls, is_graph
from tfopt.value_types import JsonObject

MIN_FRACTION = 0.1  # of a group's channels: a layer of one channel would block the information flow


@dataclass(frozen=True)
class ChannelGroup:
    """Bundles of channels that the same layers make. Each bundle can be removed separately."""

    makers: tuple[str, ...]  # paths of the layers that make the channels
    members: tuple[str, ...]  # paths of all layers with weights for them: makers, batch norms, depthwise convolutions
    bundles: Labels  # one label for each bundle
    frozen: str | None  # why none can be removed; None if they can
    size: int = 1  # of a channel: that of a head of attention

    def granularity(self, multiple: int) -> int:
        """Return the number of bundles whose sizes together are at least ``multiple``."""
        return -(-multiple // self.size)

    def widths(self, multiple: int) -> list[int]:
        """Return the numbers of channels that the group can have, the largest first."""
        count, multiple = len(self.bundles), self.granularity(multiple)
        fewest = -(-math.ceil(MIN_FRACTION * count) // multiple) * multiple
        return [count, *range((count - 1) // multiple * multiple, fewest - 1, -multiple)]

    def facts(self, remaining: Remaining) -> JsonObject:
        """Return the group's entry in the report."""
        after = int(remaining[self.bundles].sum())
        facts: JsonObject = {"members": list(self.members), "before": len(self.bundles), "after": after}
        return facts | ({"frozen": self.frozen} if self.frozen else {})


def follow_channels(model: Layer) -> ChannelGraph:
    """Follow the channels through a model and its nested models; raise ComponentError if its graph is unknown."""
    if not is_graph(model):
        received = f"{model.name}: {type(model).__name__}, a model with its own call()"
        fix = "call its layers on a keras.Input and build a keras.Model, or choose another pattern"
        raise ComponentError(received, "a Sequential or Functional model, whose graph shows which channels meet", fix)
    graph = ChannelGraph()
    entries = [_frozen_channels(graph, tensor, "they are an input of the model") for tensor in model.inputs]
    for channels in _follow(graph, model, entries, ""):
        graph.freeze(channels.labels, "they are an output of the model")
    return graph


def find_groups(graph: ChannelGraph) -> list[ChannelGroup]:
    """Return the groups in the order of the layers that make them."""
    roots = graph.roots()
    makers: list[set[int]] = [set() for _ in roots]
    members: list[set[int]] = [set() for _ in roots]
    cuts = list(graph.cuts.values())
    for index, cut in enumerate(cuts):
        for root in np.unique(roots[cut.labels]).tolist():
            if cut.role == "makes":
                makers[root].add(index)
            if cut.role != "reads":
                members[root].add(id(cut.layer))
    reasons: dict[int, str] = {}
    for label, reason in graph.reasons.items():
        reasons.setdefault(int(roots[label]), reason)
    bundles_by_makers: dict[Any, list[int]] = {}
    for root in np.unique(roots).tolist():
        if makers[root]:
            bundles_by_makers.setdefault((tuple(sorted(makers[root])), reasons.get(root)), []).append(root)
    return [
        ChannelGroup(
            tuple(dict.fromkeys(graph.names[id(cuts[index].layer)] for index in indices)),
            tuple(name for key, name in graph.names.items() if any(key in members[root] for root in bundles)),
            np.array(bundles, np.int64),
            reason or ("all of its channels are tied to each other" if len(bundles) == 1 else None),
            graph.sizes.get(bundles[0], 1),
        )
        for (indices, reason), bundles in sorted(bundles_by_makers.items(), key=lambda item: item[0][0])
    ]


def _follow(graph: ChannelGraph, model: Layer, entries: list[Channels], path: str) -> list[Channels]:
    """Follow the channels from a model's inputs to its outputs, and return those of the outputs."""
    by_tensor = {id(tensor): channels for tensor, channels in zip(model.inputs, entries, strict=True)}
    for call in calls(model):
        name = graph.names.setdefault(id(call.layer), path + call.layer.name)
        inputs = [by_tensor[id(tensor)] for tensor in call.inputs]
        try:
            is_model = is_graph(call.layer)
            outputs = _follow_model(graph, call, inputs, name) if is_model else _follow_layer(graph, call, inputs)
        except UnsupportedLayerError as error:
            reason = f"{name!r} ({type(call.layer).__name__}): {error}"
            graph.abandon(call.layer, reason)
            for channels in inputs:
                graph.freeze(channels.labels, reason)
            outputs = [_frozen_channels(graph, tensor, reason) for tensor in call.outputs]
        by_tensor |= {id(tensor): channels for tensor, channels in zip(call.outputs, outputs, strict=True)}
    return [by_tensor[id(tensor)] for tensor in model.outputs]


def _follow_layer(graph: ChannelGraph, call: Call, inputs: list[Channels]) -> list[Channels]:
    if id(call.layer) in graph.abandoned:
        raise UnsupportedLayerError("an earlier call of it is not followed")
    rule = rule_of(call.layer)
    if len(call.outputs) != 1:
        raise UnsupportedLayerError("it has several outputs")
    graph.followed[id(call.layer)] = call.layer
    return [rule(graph, call, inputs)]


def _follow_model(graph: ChannelGraph, call: Call, inputs: list[Channels], name: str) -> list[Channels]:
    """Follow a call of a nested model. In a second call its channels are tied to those of the first one."""
    inner = call.layer
    if len(inputs) > 1 and any(isinstance(leaf, dict) for leaf in call.args):
        raise UnsupportedLayerError("it takes its inputs by name")
    inputs, masks = inputs[: len(inner.inputs)], inputs[len(inner.inputs) :]
    for channels in masks:
        graph.freeze(channels.labels, "they are a mask")
    entries = graph.entries.setdefault(id(inner), inputs)
    for entry, channels in zip(entries, inputs, strict=True):
        if entry.axis != channels.axis:
            raise UnsupportedLayerError("its channels are on another axis than in an earlier call")
        graph.tie(entry.labels, channels.labels)
    return _follow(graph, inner, inputs, f"{name}/")


def _frozen_channels(graph: ChannelGraph, tensor: Any, reason: str) -> Channels:
    rank = len(tensor.shape)
    labels = graph.new_labels((tensor.shape[-1] if rank > 1 else None) or 1)
    graph.freeze(labels, reason)
    return Channels(max(rank - 1, 0), labels)
