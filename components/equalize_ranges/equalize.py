"""Equalization of one model: fold, find groups of channels, measure their ranges, change the weights, compare."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.equalize_ranges.factors import Factors, Floats, choose_factors, reading_of
from tfopt.conversion.calibration import sample_inputs
from tfopt.conversion.parameters import Calibration
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.matching.channel_groups import ChannelGroup, Reader, channel_groups, divide_channels
from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.report import Report
from tfopt.graph_checks.tensor_values import read_tensors
from tfopt.graph_def import reach
from tfopt.measurement.parity import describe_parity
from tfopt.saved_models.saved_model import opened
from tfopt.serving.verified_write import write_verified
from tfopt.value_types import JsonObject

PASSES = (*FOLDING, "fuse_layer_norms", "strip_unused")
Statistics = dict[Tensor, tuple[Floats, Floats, Floats]]  # smallest, largest and mean squared value of each channel

log = logging.getLogger(__name__)


def equalize(model: SavedModel, target: Path, examples: Examples, parameters: Calibration) -> JsonObject:
    """Write the equalized model into the staging folder ``target``, and return the content of its model card."""
    with runtimes.load(model) as parent:
        calibrated, facts = sample_inputs(examples, parent.inputs, parameters)
        batches = list(split_batches(calibrated, parent.inputs, 1))
    with opened(model, state=True) as frozen:
        child, report = equalize_frozen(frozen, model.signature, batches)
        fix = "pass a larger tolerance if that is harmless: folding batch norms rounds at other places"
        verified = write_verified(model, child, target, examples, parameters.tolerance, what="equalized", fix=fix)
    log.info("%s; %s", report["summary"], describe_parity(verified["outputs"]))
    return {"name": "equalized", "report": report, "calibration": facts, "verified": verified}


def equalize_frozen(frozen: Frozen, key: str, batches: list[Batch]) -> tuple[Frozen, JsonObject]:
    """Return a model with equalized channels, measured on batches of the signature ``key``, and the report.

    Raises:
        ComponentError: If there is no group of channels.
    """
    folded = optimize(frozen, PASSES, Report())
    graph = graph_of(folded)
    nodes = reach(
        [end.node for end in frozen.signatures[key].outputs.values()],
        lambda node: (source.node for source in graph.nodes[node].inputs),
    )
    groups: list[ChannelGroup] = []
    stays: Counter[str] = Counter()
    for _, group in channel_groups(graph):
        if isinstance(group, str):
            stays[group] += 1
        elif any(reader.node in nodes for reader in group.readers):
            groups.append(group)
        else:
            stays["the examples do not reach it"] += 1
    if not groups:
        reasons = "; ".join(f"{reason}: {number}" for reason, number in stays.most_common())
        received = f"nothing to equalize: {reasons or 'no operation that produces channels'}"
        expected = "two layers with ReLU, pooling, a residual or nothing in between"
        raise ComponentError(received, expected, "quantize the model as it is")
    read = [reader for group in groups for reader in group.readers if reader.node in nodes]
    statistics = _measure(folded, key, read, batches)
    rows: list[JsonObject] = []
    for group in groups:
        factors = _choose(graph, group, statistics)
        if isinstance(factors, str):
            stays[factors] += 1
            continue
        divide_channels(graph, group, np.ldexp(1.0, factors.exponents))
        rows.append(_row(group, factors))
    child = frozen  # without the folding: the rounding of another graph is another one, not a smaller one
    if rows:
        child = optimize(replace(folded, graph=graph.to_graph_def()), ("strip_unused",), Report())
    return child, {"summary": _summarize(rows, len(groups)), "groups": rows, "stays": dict(stays.most_common())}


def _choose(graph: Graph, group: ChannelGroup, statistics: Statistics) -> Factors | str:
    readings = []
    for reader in group.readers:
        if reader.data not in statistics:  # of another signature, with the same weights
            continue
        node = graph.nodes[reader.node]
        kernel = graph.array(node.inputs[reader.kernel])
        readings.append(reading_of(node.op, kernel, reader.axis, statistics[reader.data], reader.repeats))
    return choose_factors(readings, group.channels)


def _row(group: ChannelGroup, factors: Factors) -> JsonObject:
    return {
        "producers": group.producers,
        "readers": [reader.node for reader in group.readers],
        "channels": group.channels,
        "alpha": factors.alpha,
        "spread": list(factors.spread),
        "noise": [float(np.sqrt(ratio)) for ratio in factors.noise],
    }


def _summarize(rows: list[JsonObject], of_groups: int) -> str:
    summary = f"{len(rows)} of {of_groups} groups of channels equalized"
    if not rows:
        return f"{summary}: none would gain a tenth, and the graph stays as it is"
    spreads, noises = (np.median([row[name] for row in rows], axis=0) for name in ("spread", "noise"))
    return (
        f"{summary}; in the median, the largest range is {spreads[1]:.1f} times the geometric mean of the ranges "
        f"(before: {spreads[0]:.1f}), and the estimated noise {noises[1]:.2g} of the signal (before: {noises[0]:.2g})"
    )


def _measure(frozen: Frozen, key: str, readers: Iterable[Reader], batches: Iterable[Batch]) -> Statistics:
    """Return the statistics of each channel, the last axis, of the tensors that kernels read."""
    sizes = {reader.data: reader.channels for reader in readers}
    records: dict[Tensor, list[Floats]] = {tensor: [] for tensor in sizes}
    for values in read_tensors(frozen, key, list(sizes), batches):
        for tensor, size in sizes.items():
            rows = values[tensor].reshape(-1, size).astype(np.float64)
            records[tensor].append(np.stack([rows.min(axis=0), rows.max(axis=0), (rows**2).mean(axis=0)]))
    arrays = {tensor: np.stack(rows, axis=1) for tensor, rows in records.items()}  # [3, batches, channels]
    return {
        tensor: (low.min(axis=0), high.max(axis=0), squares.mean(axis=0))
        for tensor, (low, high, squares) in arrays.items()
    }
