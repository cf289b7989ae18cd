"""Channels removed physically: follow, rank, choose within the budget, and make the smaller model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tfopt.components.prune.channel_budget import Scope, choose
from tfopt.components.prune.channels.cost import cost
from tfopt.components.prune.channels.groups import Group, find_groups, follow
from tfopt.components.prune.channels.importance import Importance, Losses, Scores, importance
from tfopt.components.prune.channels.labels import Book, Kept, Labels
from tfopt.components.prune.channels.surgery import silenced, without
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import matches
from tfopt.keras_models.layer_graph import Layer

Measure = Literal["parameters", "flops", "latency"]
Timing = Callable[[Layer], float]  # how long a model takes, in units of what its parent takes

LATENCY_STEPS = 6  # of the bisection: each makes, exports and times a model


@dataclass(frozen=True)
class Wanted:
    """What is to go, under the names of the component's parameters.

    Attributes:
        sparsity: The part of the measure that goes.
        measure: What is to become less: ``parameters``, ``flops`` or ``latency``.
        scope: Where the least important channels are looked for: in each ``group``, or ``global``.
        importance: By what channels are ranked.
        multiple: Counts of channels stay multiples of this where they can.
        layers: Patterns of the names of layers whose channels may go; all when empty.
    """

    sparsity: float = 0.5
    measure: Measure = "flops"
    scope: Scope = "global"
    importance: Importance = "l2"
    multiple: int = 8
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removal:
    """What became of it.

    Attributes:
        model: The smaller model.
        parent: The parent with zeros for every weight of the channels that went: it answers as the smaller one does.
        report: Of every group the members and the channels before and after, or why it is frozen; parameters and FLOPs.
    """

    model: Layer
    parent: Layer
    report: dict[str, Any]


def remove_channels(model: Layer, wanted: Wanted, *, losses: Losses = (), timing: Timing | None = None) -> Removal:
    """Return a smaller model with the same inputs and outputs.

    Args:
        model: A Sequential or Functional model of Keras 3 or Keras 2; it stays as it is. Layers whose channels are not
            followed are the same objects in the smaller model.
        wanted: What is to go.
        losses: For the importance ``taylor``: the loss of one example each.
        timing: For the measure ``latency``.

    Raises:
        ComponentError: When the graph is not known, no channel may go, or the budget cannot be met.
    """
    book = follow(model)
    roots, scores = book.roots(), importance(wanted.importance, model, book, losses)
    groups = [_judged(group, scores, wanted) for group in find_groups(book)]
    _check_any(model, groups)
    measured, whole = _measure(model, book, wanted, timing)
    before = measured(whole)
    kept = choose(
        groups,
        roots,
        scores,
        measured,
        budget=before * (1 - wanted.sparsity),
        scope=wanted.scope,
        multiple=wanted.multiple,
        steps=LATENCY_STEPS if wanted.measure == "latency" else 30,
    )
    if kept is None:
        raise _beyond(groups, roots, scores, wanted, measured, before)
    report = _report(model, book, groups, whole, kept) | {"measure": wanted.measure, "ratio": measured(kept) / before}
    return Removal(without(model, book, kept), silenced(model, book, kept), report)


def _judged(group: Group, scores: Scores, wanted: Wanted) -> Group:
    reason = group.frozen
    if not reason and np.isnan(scores[group.bundles]).any():
        reason = f"nothing gives it an importance by {wanted.importance}"
    if not reason and wanted.layers and not any(matches(name, wanted.layers) for name in group.makers):
        reason = "no layer that makes it is among those that were named"
    if not reason and len(group.bundles) <= wanted.multiple:
        reason = f"it has no more than {wanted.multiple} channels"
    return Group(group.makers, group.members, group.bundles, reason)


def _check_any(model: Layer, groups: Sequence[Group]) -> None:
    if all(group.frozen for group in groups):
        reasons = sorted({f"{', '.join(group.makers[:2])}: {group.frozen}" for group in groups})
        raise ComponentError(
            f"{model.name}: no channel may go: {'; '.join(reasons[:3]) or 'no layer makes channels'}",
            "a layer whose channels end in another layer with a kernel",
            "choose another pattern, another importance, or a smaller multiple",
        )


def _measure(model: Layer, book: Book, wanted: Wanted, timing: Timing | None) -> tuple[Callable[[Kept], float], Kept]:
    """What a choice costs, and the choice that keeps all."""
    whole = np.ones(len(book.roots()), np.bool_)
    if wanted.measure == "latency":
        if timing is None:
            raise TypeError("the measure latency needs a timing")
        return (lambda kept: timing(without(model, book, kept))), whole
    if wanted.measure == "flops" and cost(model, book, whole).flops is None:
        raise ComponentError(
            f"{model.name}: FLOPs of a model that leaves a size open",
            "an input of fixed size, the batch apart",
            "pass measure=parameters",
        )
    return (lambda kept: float(getattr(cost(model, book, kept), wanted.measure))), whole


def _beyond(
    groups: Sequence[Group],
    roots: Labels,
    scores: Scores,
    wanted: Wanted,
    measured: Callable[[Kept], float],
    before: float,
) -> ComponentError:
    least = choose(
        groups, roots, scores, measured, budget=np.inf, scope=wanted.scope, multiple=wanted.multiple, steps=0
    )
    share = 1 - measured(least) / before if least is not None else 0.0
    frozen = sum(len(group.bundles) for group in groups if group.frozen)
    total = sum(len(group.bundles) for group in groups)
    return ComponentError(
        f"sparsity={wanted.sparsity:g} of {wanted.measure}",
        f"at most {share:.2f}: {frozen} of {total} channels are frozen, and every group keeps some",
        f"pass sparsity={max(share - 0.01, 0):.2f}, or a smaller multiple",
    )


def _report(model: Layer, book: Book, groups: Sequence[Group], whole: Kept, kept: Kept) -> dict[str, Any]:
    sizes = {name: cost(model, book, choice) for name, choice in (("before", whole), ("after", kept))}
    open_groups = [group for group in groups if not group.frozen]
    went = sum(int(np.count_nonzero(~kept[group.bundles])) for group in groups)
    total = sum(len(group.bundles) for group in groups)
    less = [f"{sizes['after'].parameters / sizes['before'].parameters:.0%} of the parameters"]
    if sizes["before"].flops:
        less.append(f"{(sizes['after'].flops or 0) / sizes['before'].flops:.0%} of the FLOPs")
    return {
        "summary": f"{went} of {total} channels removed from {len(open_groups)} of {len(groups)} groups: "
        + " and ".join(less),
        "parameters": {name: found.parameters for name, found in sizes.items()},
        "flops": {name: found.flops for name, found in sizes.items()},
        "groups": [group.facts(kept) for group in groups],
        "not_followed": sorted(set(book.abandoned.values())),
    }
