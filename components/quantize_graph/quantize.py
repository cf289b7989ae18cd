"""Quantization of one model: fold, find the layers, calibrate, write 8-bit operations, compare."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.quantize_graph.int8_operations import FUSED, Int8Writer
from tfopt.components.quantize_graph.layers import Layer, Stays, find_layers
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.conversion.calibration import compare_ranges, sample_inputs
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.conversion.verification import verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.graph_def import FLOAT, INT32, reach
from tfopt.graph.law import Maker
from tfopt.graph.law_order import FOLDING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.report import Report
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.measurement.parity import describe_parity
from tfopt.saved_models.saved_model import opened, write
from tfopt.serving.verified_write import copy_assets
from tfopt.value_types import JsonObject

PASSES = (*FOLDING, "fuse_pad_into_conv", "strip_unused")
BATCH = 16
NAME = "quantized saved_model"

Range = tuple[float, float]

log = logging.getLogger(__name__)


def quantize(model: SavedModel, target: Path, examples: Examples, parameters: GraphQuantization) -> JsonObject:
    """Write the quantized model into the staging folder ``target``, and return the content of its model card."""
    from tensorflow.python.framework import kernels

    for name in parameters.operations:
        if not kernels.get_registered_kernels_for_op(FUSED[name]).kernel:
            received = f"no kernel of this TensorFlow for {FUSED[name]}"
            fix = "quantize where the model will be served, or use export_tflite with precision=int8"
            raise ComponentError(received, "TensorFlow for x86 CPUs, which is built with oneDNN", fix)
    with runtimes.load(model) as parent:
        calibrated, facts = sample_inputs(examples, parent.inputs, parameters)
        with opened(model, state=True) as frozen:
            batches = list(split_batches(calibrated, parent.inputs, BATCH))
            child, layers, stays, stability = quantize_frozen(frozen, model.signature, batches, parameters)
            write(child, target / "Format-Serving")
            copy_assets(model, target / "Format-Serving")
        with runtimes.load(SavedModel(target), signature=model.signature) as served:
            verified = verify(parent, served, examples, calibrated, parameters, "int8")
    log.info("%d layers in 8 bits; %s", len(layers), describe_parity(verified["outputs"]))
    for warning in verified.get("warnings", ()):
        log.warning("%s: %s", NAME, warning)
    return {
        **{"name": NAME, "precision": "int8", "report": {"layers": layers, "stays": stays}},
        **{"calibration": facts, "stability": stability, "verified": verified},
    }


def quantize_frozen(
    frozen: Frozen, key: str, batches: list[Batch], parameters: GraphQuantization
) -> tuple[Frozen, list[str], Stays, JsonObject]:
    """Return a model with 8-bit layers, these, what stays, and how ranges differ between halves of the data.

    The batches are for the signature ``key``. Signatures with the same inputs are calibrated on the same examples;
    layers that only others use stay.

    Raises:
        ComponentError: If there is no layer to quantize, or an activation is NaN or infinite on the examples.
    """
    folded = optimize(frozen, PASSES, Report())
    graph = graph_of(folded)
    reached = _reached(graph, folded, key)
    layers, stays = find_layers(graph, parameters.operations, set().union(*reached.values()))
    if not layers:
        reasons = "; ".join(f"{reason}: {', '.join(ops)}" for reason, ops in stays.items())
        received = f"nothing to quantize: {reasons or 'no convolution and no matrix product'}"
        expected = "a convolution or matrix product with constant weights"
        fix = "quantize the model from before cast_precision, or leave the model as it is"
        raise ComponentError(received, expected, fix)
    ranges, stability = _calibrate(folded, reached, layers, batches)
    Int8Writer(graph, layers, ranges, reduced=is_range_reduced(parameters.reduce_range)).replace_layers()
    child = optimize(replace(folded, graph=graph.to_graph_def()), ("strip_unused", "share_equal_nodes"), Report())
    return child, [layer.kernel.name for layer in layers], stays, stability


def _reached(graph: Graph, frozen: Frozen, key: str) -> dict[str, set[str]]:
    """Return the nodes that a signature computes, and those of the other signatures with the same inputs, by key."""

    def specs(name: str) -> dict[str, object]:
        return {one: (end.dtype, end.shape) for one, end in frozen.signatures[name].inputs.items()}

    alike = [key, *(other for other in frozen.signatures if other != key and specs(other) == specs(key))]
    ends = {name: [end.node for end in frozen.signatures[name].outputs.values()] for name in alike}
    return {
        name: reach(ends[name], lambda node: (source.node for source in graph.nodes[node].inputs)) for name in alike
    }


def _calibrate(
    frozen: Frozen, reached: dict[str, set[str]], layers: list[Layer], batches: list[Batch]
) -> tuple[dict[Tensor, Range], JsonObject]:
    """Return the ranges of all tensors that layers read or return, and how they differ between halves of the data."""
    ranges: dict[Tensor, Range] = {}
    halves: tuple[dict[str, Range], dict[str, Range]] = ({}, {})
    for key, nodes in reached.items():
        own = [layer for layer in layers if layer.kernel.name in nodes]
        tensors = {tensor for layer in own for tensor in (layer.source, layer.residual, Tensor(layer.end)) if tensor}
        measured = _measure_ranges(frozen, key, sorted(tensors - set(ranges)), batches)
        ranges |= union(measured)
        for half, part in zip(halves, (measured[::2], measured[1::2]), strict=True):
            half |= {str(tensor): value for tensor, value in union(part).items()}
    for tensor, (low, high) in ranges.items():
        if not np.isfinite([low, high]).all():
            fix = "check the examples; inspect_model lists weights that are not finite"
            raise ComponentError(f"{tensor} is NaN or infinite on the calibration examples", "finite activations", fix)
    return ranges, compare_ranges(*halves)


def _measure_ranges(
    frozen: Frozen, key: str, tensors: Iterable[Tensor], batches: Iterable[Batch]
) -> list[dict[Tensor, Range]]:
    """Return, for each batch, the range of each tensor of floats that a signature computes."""
    measured = list(dict.fromkeys(tensors))
    graph, outputs = Graph.of(frozen.graph), {}
    for number, tensor in enumerate(measured):
        node = graph.nodes[tensor.node]
        make = Maker(graph, node, [])
        flat, axis = make.reshape(tensor, [-1], like=node, T=FLOAT), make.constant("axis", np.zeros(1, np.int32))
        for op in ("Min", "Max"):
            extreme = make.node(op, flat, axis, like=node, T=FLOAT, Tidx=INT32, keep_dims=False)
            outputs[f"{op}_{number}"] = Endpoint(f"{extreme.node}:0", "float32", ())
    signature = Signature(frozen.signatures[key].inputs, outputs)
    probed = replace(frozen, graph=graph.to_graph_def(), signatures={key: signature})
    ranges = []
    with FrozenRuntime(probed, key) as runtime:
        for batch in batches:
            values = runtime.run(batch)
            lows, highs = ([float(values[f"{op}_{index}"]) for index in range(len(measured))] for op in ("Min", "Max"))
            ranges.append(dict(zip(measured, zip(lows, highs, strict=True), strict=True)))
    return ranges


def union(ranges: Iterable[dict[Tensor, Range]]) -> dict[Tensor, Range]:
    """Return the range over all batches; NaN in one stays NaN."""
    joined: dict[Tensor, Range] = {}
    for batch_ranges in ranges:
        for tensor, (low, high) in batch_ranges.items():
            lowest, highest = joined.get(tensor, (low, high))
            joined[tensor] = (float(np.minimum(low, lowest)), float(np.maximum(high, highest)))
    return joined
