"""Quantization of one model: fold, find the layers, calibrate, write 8-bit operations, compare."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.quantize_graph.int8_operations import FUSED, Int8Writer
from tfopt.components.quantize_graph.layers import Layer, Stays, find_layers
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.conversion.activation_ranges import AUTO, Histogram, Method, choose_method
from tfopt.conversion.calibration import compare_halves, sample_inputs
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.conversion.verification import compare_held_out, verify
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import split_batches
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import FOLDING
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.report import Report
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.tensor_values import read_tensors
from tfopt.graph_def import reach
from tfopt.measurement.parity import describe_parity, noise
from tfopt.saved_models.saved_model import opened, write
from tfopt.saved_models.signature_functions import share_signatures
from tfopt.serving.verified_write import copy_assets
from tfopt.value_types import JsonObject

PASSES = (*FOLDING, "fuse_pad_into_conv", "strip_unused")
NAME = "quantized saved_model"

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

        def measure(form: Frozen) -> float:
            child = FrozenRuntime(form, model.signature)
            return noise(compare_held_out(parent, child, examples, calibrated, parameters))

        with opened(model, state=True) as frozen:
            batches = list(split_batches(calibrated, parent.inputs, 1))
            child, layers, stays, range_facts = quantize_frozen(frozen, model.signature, batches, parameters, measure)
            write(child, target / "Format-Serving")
            copy_assets(model, target / "Format-Serving")
        with runtimes.load(SavedModel(target), signature=model.signature) as served:
            verified = verify(parent, served, examples, calibrated, parameters, "int8")
    log.info("%d layers in 8 bits; %s", len(layers), describe_parity(verified["outputs"]))
    for warning in verified.get("warnings", ()):
        log.warning("%s: %s", NAME, warning)
    return {
        **{"name": NAME, "precision": "int8", "report": {"layers": layers, "stays": stays}},
        **{"calibration": facts, "stability": range_facts["stability"], "verified": verified},
        "activation_ranges": range_facts["activation_ranges"],
    }


def quantize_frozen(
    frozen: Frozen,
    key: str,
    batches: list[Batch],
    parameters: GraphQuantization,
    measure_error: Callable[[Frozen], float],
) -> tuple[Frozen, list[str], Stays, ConversionFacts]:
    """Return a model with 8-bit layers, these, what stays, and metadata on the ranges.

    The batches, of one record each, are for the signature ``key``; ``measure_error`` returns the error of a model on
    other records. Signatures with the same inputs are calibrated on the same examples;
    layers that only others use stay.

    Raises:
        ComponentError: If there is no layer to quantize, or an activation is NaN or infinite on the examples.
    """
    folded = optimize(share_signatures(frozen, key), PASSES, Report())
    graph = graph_of(folded)
    reached = _reached(graph, folded, key)
    layers, stays = find_layers(graph, parameters.operations, set().union(*reached.values()))
    if not layers:
        reasons = "; ".join(f"{reason}: {', '.join(ops)}" for reason, ops in stays.items())
        received = f"nothing to quantize: {reasons or 'no convolution and no matrix product'}"
        expected = "a convolution or matrix product with constant weights"
        fix = "quantize the model from before cast_precision, or leave the model as it is"
        raise ComponentError(received, expected, fix)
    histograms = _calibrate(folded, reached, layers, batches)

    def quantize_by(method: Method) -> Frozen:
        own = graph_of(folded)
        parts, _ = find_layers(own, parameters.operations, set().union(*reached.values()))
        ranges = {
            tensor: histogram.range_of(method, symmetric=histogram.low < 0) for tensor, histogram in histograms.items()
        }
        Int8Writer(own, parts, ranges, reduced=is_range_reduced(parameters.reduce_range)).replace_layers()
        return optimize(replace(folded, graph=own.to_graph_def()), ("strip_unused", "share_equal_nodes"), Report())

    child, _, facts = choose_method(parameters.calibration, quantize_by, measure_error, AUTO)
    facts["stability"] = compare_halves(histograms.values())
    return child, [layer.kernel.name for layer in layers], stays, facts


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
) -> dict[Tensor, Histogram]:
    """Return the histograms of all tensors that layers read or return."""
    histograms: dict[Tensor, Histogram] = {}
    for key, nodes in reached.items():
        own = [layer for layer in layers if layer.kernel.name in nodes]
        tensors = {tensor for layer in own for tensor in (layer.source, layer.residual, Tensor(layer.end)) if tensor}
        if new := sorted(tensors - set(histograms)):
            histograms |= _measure_histograms(frozen, key, new, batches)
    return histograms


def _measure_histograms(
    frozen: Frozen, key: str, tensors: Iterable[Tensor], batches: Iterable[Batch]
) -> dict[Tensor, Histogram]:
    """Return the histogram of each tensor of floats that a signature computes."""
    histograms = {tensor: Histogram(str(tensor)) for tensor in tensors}
    for values in read_tensors(frozen, key, histograms, batches):
        for tensor, histogram in histograms.items():
            histogram.add(values[tensor])
    return histograms
