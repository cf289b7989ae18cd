"""Table of latencies by the number of channels of each group, and the removal that it suggests.

The model is measured with a few numbers of channels of one group at a time, and latencies between them are
interpolated. Removals are then ordered by the importance that they lose for each fraction of the latency that they
save, each group along the lower convex hull of its points: the greedy solution of the multiple-choice knapsack problem
(Sinha and Zoltners, "The Multiple-Choice Knapsack Problem", Operations Research 1979). Savings of groups are added,
although two groups that share a kernel save less together, so that the whole model is measured, and the search goes on
between the measured removals.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import ChannelGroup
from tfopt.components.prune.channels.importance import Scores
from tfopt.components.prune.channels.labels import ChannelGraph, Labels, Remaining
from tfopt.components.prune.channels.latency import LatencyMeter
from tfopt.components.prune.channels.surgery import build_smaller_model
from tfopt.keras_models.layer_graph import Layer
from tfopt.training.checkpointing.stored_measurements import StoredMeasurements

MEASURED = (1 / 2, 0, 3 / 4)  # fractions of a group's channels, in the order of their measurement; 0: the fewest
VERIFIED = 6  # measurements of the whole model
TOLERANCE = 0.01  # fraction of the parent's latency by which the result may be faster than requested
LOG_S = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupLatency:
    """The latency of the model with fewer channels of one group, as fractions of the whole model's."""

    makers: str  # the layers that make the channels
    channels: int
    latencies: dict[int, float] = field(default_factory=dict)  # by number of channels
    after: int | None = None  # channels that remain in the pruned model

    def saved(self, widths: Sequence[int]) -> NDArray[np.float64]:
        """Return the fraction that is saved with each number of channels, the largest first; it never falls."""
        points = sorted((self.latencies | {self.channels: 1.0}).items())
        latencies = np.interp(widths, [width for width, _ in points], [latency for _, latency in points])
        return np.maximum.accumulate(1 - latencies)


@dataclass(frozen=True)
class LatencyTable:
    """The latencies of all groups that can lose channels, and how they were measured."""

    runtime: str
    records: int  # in a call
    milliseconds: float  # latency of the whole model
    seconds: float  # that the measurement took
    reused: int  # latencies of an earlier run of the step
    groups: list[GroupLatency]  # those without latencies were not measured in time, and remain whole
    ratio: float = 1.0  # latency of the pruned model as a fraction of the whole one's
    target: float = 1.0  # what was requested

    def with_result(self, after: Sequence[int], ratio: float, target: float) -> "LatencyTable":
        """Return the table with the channels of each group that remain, and the latency of the pruned model."""
        groups = [replace(group, after=count) for group, count in zip(self.groups, after, strict=True)]
        return replace(self, groups=groups, ratio=ratio, target=target)


@dataclass(frozen=True)
class Step:
    """A removal of channels of one group, after earlier ones."""

    group: int
    channels: int  # that remain in the group
    saved: float  # fraction of the latency, by the table
    price: float  # importance that is lost for each fraction, on the segment of the hull


def measure_table(
    model: Layer,
    graph: ChannelGraph,
    groups: Sequence[ChannelGroup],
    meter: LatencyMeter,
    stored: StoredMeasurements,
    *,
    multiple: int,
    seconds: float,
) -> LatencyTable:
    """Measure the latency with a few numbers of channels of each group, until the time is over."""
    rows = [GroupLatency(", ".join(group.makers), len(group.bundles)) for group in groups]
    roots, start = graph.roots(), time.monotonic()
    plan, logged = list(_plan(model, graph, groups, multiple)), start
    for done, (index, channels) in enumerate(plan, 1):
        name = f"{rows[index].makers}: {channels}"
        values = stored.get(name)
        if values is None:
            if time.monotonic() - start > seconds:
                continue
            smaller = build_smaller_model(model, graph, _without(roots, groups[index].bundles[channels:]))
            values = {"latency": meter.measure(smaller)}
            stored.add(name, values)
        rows[index].latencies[channels] = values["latency"] or 0.0
        if done == len(plan) or time.monotonic() - logged > LOG_S:
            logged = time.monotonic()
            log.info("latency table: %d of %d latencies in %.0f s", done, len(plan), logged - start)
    elapsed = round(time.monotonic() - start, 1)
    return LatencyTable(meter.runtime, meter.records, meter.milliseconds, elapsed, stored.reused, rows)


def order_steps(groups: Sequence[ChannelGroup], scores: Scores, table: LatencyTable, multiple: int) -> list[Step]:
    """Return all steps that save latency, those first that lose least importance for what they save."""
    hulls = (
        _hull(index, group.widths(multiple), np.sort(scores[group.bundles]), row)
        for index, (group, row) in enumerate(zip(groups, table.groups, strict=True))
        if row.latencies
    )
    return sorted(chain.from_iterable(hulls), key=lambda step: step.price)


def search_steps(
    steps: Sequence[Step], measure: Callable[[Sequence[Step]], float], budget: float
) -> tuple[Sequence[Step], float]:
    """Return the first steps with which the whole model meets the budget, and its measured latency.

    ``measure`` returns the latency of the whole model after some steps. If all of them do not suffice, they are
    returned with their latency.
    """
    saved = np.cumsum([0.0, *(step.saved for step in steps)])
    low, high = 0, len(steps)
    measured = {low: 1.0, high: measure(steps)}
    for count in range(VERIFIED):
        if budget - measured[high] <= TOLERANCE or high - low <= 1:
            break
        between = saved[low] + (saved[high] - saved[low]) * (
            0.5 if count % 2 else (measured[low] - budget) / (measured[low] - measured[high])
        )
        middle = int(np.clip(np.searchsorted(saved, between), low + 1, high - 1))
        measured[middle] = measure(steps[:middle])
        low, high = (low, middle) if measured[middle] <= budget else (middle, high)
    return steps[:high], measured[high]


def apply_steps(roots: Labels, groups: Sequence[ChannelGroup], scores: Scores, steps: Sequence[Step]) -> Remaining:
    """Return the channels that remain after some steps: the most important ones of each group."""
    removed: list[Labels] = []
    for index, channels in {step.group: step.channels for step in steps}.items():
        bundles = groups[index].bundles
        removed.append(bundles[np.argsort(-scores[bundles], kind="stable")][channels:])
    return _without(roots, *removed)


def _plan(
    model: Layer, graph: ChannelGraph, groups: Sequence[ChannelGroup], multiple: int
) -> Iterator[tuple[int, int]]:
    """Yield groups and numbers of channels: all groups with half of them first, those that save most FLOPs first."""
    roots = graph.roots()

    def cost_of_half(index: int) -> int:
        bundles = groups[index].bundles
        cost = count_cost(model, graph, _without(roots, bundles[len(bundles) // 2 :]))
        return cost.parameters if cost.flops is None else cost.flops

    order = sorted(range(len(groups)), key=cost_of_half)
    planned: set[tuple[int, int]] = set()
    for fraction in MEASURED:
        for index in order:
            full, *widths = groups[index].widths(multiple)
            width = min(widths, key=lambda width: (abs(width - fraction * full), width))
            if (index, width) not in planned:
                planned.add((index, width))
                yield index, width


def _hull(index: int, widths: Sequence[int], ranked: Scores, row: GroupLatency) -> Iterator[Step]:
    """Yield steps along the lower convex hull of lost importance by saved latency, also those within a segment."""
    saved = row.saved(widths)
    lost = np.array([ranked[: len(ranked) - width].sum() for width in widths])
    at = 0
    while len(later := np.flatnonzero(saved > saved[at])):
        prices = (lost[later] - lost[at]) / (saved[later] - saved[at])
        end = int(later[np.argmin(prices)])
        for position in range(at + 1, end + 1):
            yield Step(index, widths[position], float(saved[position] - saved[position - 1]), float(prices.min()))
        at = end


def _without(roots: Labels, *removed: Labels) -> Remaining:
    """Return the labels that remain without these bundles."""
    remaining = np.ones(len(roots), np.bool_)
    for bundles in removed:
        remaining[bundles] = False
    return remaining[roots]
