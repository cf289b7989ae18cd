"""Selection of the channels to remove: the smallest cut that meets a budget, and the smaller model without them.

For the latency in ``global`` scope see `latency_table`. Otherwise one number, the fraction of channels that are
removed, is searched by bisection. In ``group`` scope every group loses
that fraction of its channels. In ``global`` scope that fraction of all channels is removed, the least important ones of
the whole model, and every group retains at least a tenth. Numbers of channels are rounded up to a multiple.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import MIN_FRACTION, ChannelGroup, find_groups, follow_channels
from tfopt.components.prune.channels.importance import Losses, Scores, score_bundles
from tfopt.components.prune.channels.labels import ChannelGraph, Labels, Remaining
from tfopt.components.prune.channels.latency import LatencyMeter
from tfopt.components.prune.channels.latency_table import (
    LatencyTable,
    Step,
    apply_steps,
    measure_table,
    order_steps,
    search_steps,
)
from tfopt.components.prune.channels.surgery import build_smaller_model, zero_channels
from tfopt.components.prune.parameters import PruningSettings
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import matches
from tfopt.keras_models.layer_graph import Layer
from tfopt.training.checkpointing.stored_measurements import StoredMeasurements
from tfopt.value_types import JsonObject

STEPS = 30  # of the bisection
LATENCY_STEPS = 6  # of the bisection for latency: each step builds, exports and times a model

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Removal:
    """A model before and after the removal of channels."""

    model: Layer  # the smaller model
    parent: Layer  # with zeros for every weight of the removed channels: it has the smaller model's outputs
    report: JsonObject  # groups before and after, or why they are frozen; parameters and FLOPs
    ratio: float  # cost of the smaller model as a fraction of the parent's
    table: LatencyTable | None = None  # of latencies, if it was measured


def remove_channels(
    model: Layer,
    settings: PruningSettings,
    *,
    losses: Losses = (),
    meter: LatencyMeter | None = None,
    stored: StoredMeasurements | None = None,
) -> Removal:
    """Return a smaller model with the same inputs and outputs.

    The model, Sequential or Functional, of Keras 3 or Keras 2, does not change. Layers through which channels are not
    followed are the same objects in the smaller model. The importance ``taylor`` needs ``losses``, one function per
    example that returns the loss. The measure ``latency`` needs a ``meter`` for the model; ``stored`` has the latencies
    of its groups that an earlier run of the step measured.

    Raises:
        ComponentError: If the graph is unknown, no channel can be removed, or the sparsity cannot be reached.
    """
    graph = follow_channels(model)
    roots, scores = graph.roots(), score_bundles(settings.importance, graph, losses)
    groups = [_freeze_excluded(group, scores, settings) for group in find_groups(graph)]
    _check_any_removable(model, groups)
    all_channels = np.ones(len(roots), np.bool_)
    if settings.measure == "flops" and count_cost(model, graph, all_channels).flops is None:
        received = f"{model.name}: FLOPs of a model with an unknown size"
        raise ComponentError(received, "an input of fixed size, apart from the batch", "pass measure=parameters")
    if meter and settings.scope == "global":
        stored = stored or StoredMeasurements(None, None)
        remaining, ratio, table = _select_by_table(model, graph, groups, scores, settings, meter, stored)
    else:
        remaining, ratio = _select_by_fraction(model, graph, groups, scores, settings, meter)
        table = None
    report = _report(model, graph, groups, all_channels, remaining)
    report |= {"measure": settings.measure, "ratio": ratio} | ({"latency": asdict(table)} if table else {})
    smaller, zeroed = build_smaller_model(model, graph, remaining), zero_channels(model, graph, remaining)
    return Removal(smaller, zeroed, report, ratio, table)


def _select_by_table(
    model: Layer,
    graph: ChannelGraph,
    groups: Sequence[ChannelGroup],
    scores: Scores,
    settings: PruningSettings,
    meter: LatencyMeter,
    stored: StoredMeasurements,
) -> tuple[Remaining, float, LatencyTable]:
    """Return the channels that remain, the latency of the smaller model, and the table."""
    reducible = [group for group in groups if not group.frozen]
    seconds = 60 * settings.latency_minutes
    table = measure_table(model, graph, reducible, meter, stored, multiple=settings.multiple, seconds=seconds)
    steps, roots = order_steps(reducible, scores, table, settings.multiple), graph.roots()

    def measure(some: Sequence[Step]) -> float:
        latency = meter.measure(build_smaller_model(model, graph, apply_steps(roots, reducible, scores, some)))
        log.info("latency %.1f%% of the model's after %d of %d steps", 100 * latency, len(some), len(steps))
        return latency

    chosen, ratio = search_steps(steps, measure, 1 - settings.sparsity)
    if ratio > 1 - settings.sparsity:
        raise _unreachable(groups, settings, 1 - ratio, sum(not row.latencies for row in table.groups))
    remaining = apply_steps(roots, reducible, scores, chosen)
    after = [int(remaining[group.bundles].sum()) for group in reducible]
    return remaining, ratio, table.with_result(after, ratio, 1 - settings.sparsity)


def _select_by_fraction(
    model: Layer,
    graph: ChannelGraph,
    groups: Sequence[ChannelGroup],
    scores: Scores,
    settings: PruningSettings,
    meter: LatencyMeter | None,
) -> tuple[Remaining, float]:
    """Return the channels that remain if one fraction of them is removed, and the cost of the smaller model."""
    roots = graph.roots()

    def cost(remaining: Remaining) -> float:
        if meter:
            return meter.measure(build_smaller_model(model, graph, remaining))
        return float(getattr(count_cost(model, graph, remaining), settings.measure))

    before = cost(np.ones(len(roots), np.bool_))
    select = partial(select_remaining, groups, roots, scores, cost, settings=settings)
    remaining = select(budget=before * (1 - settings.sparsity), steps=LATENCY_STEPS if meter else STEPS)
    if remaining is None:
        smallest = select(budget=np.inf, steps=0)
        raise _unreachable(groups, settings, 0.0 if smallest is None else 1 - cost(smallest) / before)
    return remaining, cost(remaining) / before


def select_remaining(
    groups: Sequence[ChannelGroup],
    roots: Labels,
    scores: Scores,
    cost: Callable[[Remaining], float],
    *,
    budget: float,
    settings: PruningSettings,
    steps: int = STEPS,
) -> Remaining | None:
    """Return the channels that remain so that the cost is within the budget, or None if that is impossible.

    ``roots`` are the bundles of labels, ``scores`` their importance, both of shape [labels]. Only groups that are not
    frozen lose channels. ``steps`` is the number of steps of the bisection.
    """
    reducible = [group for group in groups if not group.frozen]
    ranked = np.sort(scores[np.concatenate([group.bundles for group in reducible])]) if reducible else np.zeros(0)

    def select(fraction: float) -> Remaining:
        remaining = np.ones(len(roots), np.bool_)
        for group in reducible:
            best_first = group.bundles[np.argsort(-scores[group.bundles], kind="stable")]
            remaining[best_first[_count(group, scores[group.bundles], ranked, fraction, settings) :]] = False
        return remaining[roots]

    low, high, smallest = 0.0, 1.0, select(1.0)
    if cost(smallest) > budget:
        return None
    for _ in range(steps):
        middle = (low + high) / 2
        remaining = select(middle)
        if cost(remaining) <= budget:
            high, smallest = middle, remaining
        else:
            low = middle
    return smallest


def _count(group: ChannelGroup, scores: Scores, ranked: Scores, fraction: float, settings: PruningSettings) -> int:
    """Return how many channels of a group remain.

    ``scores`` is the importance of its bundles, and ``ranked`` that of all bundles, in ascending order.
    """
    if settings.scope == "group":
        count = int(np.ceil(len(scores) * (1 - fraction)))
    else:
        removed = int(fraction * len(ranked))
        threshold = ranked[removed - 1] if removed else -np.inf
        count = max(int(np.sum(scores > threshold)), int(np.ceil(MIN_FRACTION * len(scores))))
    multiple = group.granularity(settings.multiple)
    return min(max(-(-count // multiple), 1) * multiple, len(scores))


def _freeze_excluded(group: ChannelGroup, scores: Scores, settings: PruningSettings) -> ChannelGroup:
    """Freeze a group without importance, of layers that were not selected, or not larger than the multiple."""
    reason = group.frozen
    if not reason and np.isnan(scores[group.bundles]).any():
        reason = f"it has no importance by {settings.importance}"
    if not reason and settings.layers and not any(matches(name, settings.layers) for name in group.makers):
        reason = "none of the layers that make it is one of the selected layers"
    fewest = group.granularity(settings.multiple)
    if not reason and len(group.bundles) <= fewest:
        reason = f"it has no more than {fewest} channels"
    return replace(group, frozen=reason)


def _check_any_removable(model: Layer, groups: Sequence[ChannelGroup]) -> None:
    if all(group.frozen for group in groups):
        reasons = sorted({f"{', '.join(group.makers[:2])}: {group.frozen}" for group in groups})
        received = f"{model.name}: no channel can be removed: {'; '.join(reasons[:3]) or 'no layer makes channels'}"
        expected = "a layer whose channels end in another layer with a kernel"
        raise ComponentError(received, expected, "choose another pattern, another importance, or a smaller multiple")


def _unreachable(
    groups: Sequence[ChannelGroup], settings: PruningSettings, fraction: float, not_measured: int = 0
) -> ComponentError:
    """Return the error for a sparsity above this fraction, which is the largest possible one."""
    frozen = sum(len(group.bundles) for group in groups if group.frozen)
    total = sum(len(group.bundles) for group in groups)
    received = f"sparsity={settings.sparsity:g} of {settings.measure}"
    expected = f"at most {fraction:.2f}: {frozen} of {total} channels are frozen, and every group retains some"
    fix = f"pass sparsity={max(fraction - 0.01, 0):.2f}, or a smaller multiple"
    if not_measured:
        fix = f"{not_measured} groups were not measured in time: raise latency_minutes"
    return ComponentError(received, expected, fix)


def _report(
    model: Layer, graph: ChannelGraph, groups: Sequence[ChannelGroup], all_channels: Remaining, remaining: Remaining
) -> JsonObject:
    before, after = count_cost(model, graph, all_channels), count_cost(model, graph, remaining)
    reducible = [group for group in groups if not group.frozen]
    removed = sum(int(np.count_nonzero(~remaining[group.bundles])) for group in groups)
    total = sum(len(group.bundles) for group in groups)
    fractions = [f"{after.parameters / before.parameters:.0%} of the parameters"]
    if before.flops:
        fractions.append(f"{(after.flops or 0) / before.flops:.0%} of the FLOPs")
    return {
        "summary": f"{removed} of {total} channels removed from {len(reducible)} of {len(groups)} groups: "
        + f"{' and '.join(fractions)} remain",
        "parameters": {"before": before.parameters, "after": after.parameters},
        "flops": {"before": before.flops, "after": after.flops},
        "groups": [group.facts(remaining) for group in groups],
        "not_followed": sorted(set(graph.abandoned.values())),
    }
