"""int8 quantization by NNCF: the better of two ways to calibrate ranges, and ops that stay in float32."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.export_openvino import float_part, openvino_graph
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.conversion.mixed_precision import ERROR_RECORDS, Layer, MixedModel, compare_tensors
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino import compile_model
from tfopt.runtimes.openvino_import import openvino, without_telemetry

with without_telemetry():
    import nncf
    from nncf.quantization.advanced_parameters import OverflowFix
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

# The mean of each record's ends cuts off rare large activations; the ends over all records make the steps larger.
RANGES = {"mean": None, "minmax": RangeEstimatorParametersSet.MINMAX}  # None: NNCF's own choice


def quantize(
    model: Any, feed: list[Batch], parameters: OpenVINOConversion, measure_error: Callable[[Any], float]
) -> tuple[Any, dict[str, Any], ConversionFacts]:
    """Return the int8 form of a float ``openvino.Model``, its arguments of NNCF, and metadata for the model card.

    Two forms are made, with the means of the records' smallest and largest activations and with the smallest and
    largest ones of all records. Either can be several times closer to the float model: ``measure_error`` returns the
    error of a form on records that it was not calibrated on.

    Raises:
        ComponentError: If NNCF fails, or nothing in the model can be computed in 8 bits.
    """
    logging.getLogger("nncf").setLevel(logging.ERROR)
    if openvino_graph.count_ops(model).get(openvino_graph.FAKE_QUANTIZE):
        received = "a model that was quantized already"
        fix = "pass the model from before it was quantized, or choose precision='float32' to convert it as it is"
        raise ComponentError(received, "a float model: quantizing twice adds up two rounding errors", fix)
    floating = float_part.find(model)
    errors: dict[str, float] = {}
    forms: dict[str, tuple[Any, dict[str, Any]]] = {}
    for ranges in RANGES:
        settings = _settings(model, parameters, ranges, floating.operations)
        forms[ranges] = _quantize(model, feed, settings), settings
        errors[ranges] = measure_error(forms[ranges][0])
    chosen = min(errors, key=errors.__getitem__)
    quantized, settings = forms[chosen]
    if not openvino_graph.int8_layers(quantized):
        received = "precision='int8' for a model without a convolution or matrix product of its own weights"
        raise ComponentError(received, "a layer that can be computed in 8 bits", "choose float32 or float16")
    names, activations = _compile_activations(model, quantized)
    halves = calibration.split_halves(feed)
    stability = calibration.compare_ranges(*(_ranges(names, activations, half, chosen) for half in halves))
    facts: ConversionFacts = {
        "preset": settings["preset"].value,
        "attention": openvino_graph.has_attention(model),
        "reduce_range": is_range_reduced(parameters.reduce_range),
        "activation_ranges": {"chosen": chosen, "error": errors},
        "stability": stability,
    }
    return quantized, settings, facts | floating.facts()


def _quantize(model: Any, feed: list[Batch], settings: dict[str, Any]) -> Any:
    try:
        return nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
    except Exception as error:  # its exceptions share no base
        received = f"the quantizer failed: {first_line(error)[:300]}"
        raise ComponentError(received, "a graph that NNCF can quantize", "choose float32 or float16") from error


def _settings(model: Any, parameters: OpenVINOConversion, ranges: str, in_float: Collection[str]) -> dict[str, Any]:
    attention = openvino_graph.has_attention(model)
    preset = parameters.preset if parameters.preset != "auto" else "mixed" if attention else "performance"
    advanced = nncf.AdvancedQuantizationParameters(
        overflow_fix=OverflowFix.ENABLE if is_range_reduced(parameters.reduce_range) else OverflowFix.DISABLE
    )
    if estimator := RANGES[ranges]:
        advanced.activations_range_estimator_params = estimator
    return {
        "preset": nncf.QuantizationPreset[preset.upper()],
        "model_type": nncf.ModelType.TRANSFORMER if attention else None,
        "ignored_scope": nncf.IgnoredScope(names=list(in_float), validate=False) if in_float else None,
        "advanced_parameters": advanced,
    }


def _compile_activations(model: Any, quantized: Any) -> tuple[list[str], Any]:
    """Return the names of the ``FakeQuantize`` ops, and the float model compiled with their inputs as outputs."""
    copy = model.clone()  # results of activations would stay in the model
    nodes = {node.get_friendly_name(): node for node in copy.get_ops()}
    activations = {}
    for op in quantized.get_ops():
        if op.get_type_name() == openvino_graph.FAKE_QUANTIZE:
            source = op.input(0).get_source_output()
            while source.get_node().get_friendly_name() not in nodes and source.get_node().inputs():
                source = source.get_node().input(0).get_source_output()  # NNCF inserted this node
            node = nodes.get(source.get_node().get_friendly_name())
            if node and node.get_type_name() != "Constant":
                activations[op.get_friendly_name()] = node.output(source.get_index())
    return list(activations), compile_model(openvino.Model(list(activations.values()), copy.get_parameters(), ""))


def _ranges(names: list[str], activations: Any, feed: list[Batch], kind: str) -> calibration.Ranges:
    """Return the range of each activation as NNCF calibrates it; ``kind`` is one of `RANGES`."""
    request = activations.create_infer_request()
    ends = []
    for batch in feed:
        values = request.infer(dict(batch), share_inputs=True, share_outputs=True).to_tuple()
        ends.append([(array.min(), array.max()) for array in values])
    lows, highs = np.moveaxis(np.asarray(ends, np.float64), -1, 0)
    if kind == "mean":
        low, high = lows.mean(axis=0), highs.mean(axis=0)
    else:
        low, high = lows.min(axis=0), highs.max(axis=0)
    return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))


class QuantizableModel(MixedModel[Any]):
    """A float ``openvino.Model`` whose ops can stay in float32, each quantized with the same data and settings."""

    def __init__(self, model: Any, quantized: Any, feed: list[Batch], settings: Mapping[str, Any]) -> None:
        """Store a model, its form entirely in int8, and the arguments of NNCF that made it."""
        self._float, self._quantized, self._feed, self._settings = model, quantized, feed, settings
        self._in_float = settings["ignored_scope"].names if settings["ignored_scope"] else []

    @cached_property
    def layers(self) -> list[Layer]:
        """Return the ops with quantized inputs, without those that only move values."""
        names = {op.get_friendly_name() for op in self._float.get_ops()}
        layers = []
        for op in self._quantized.get_ops():
            sources = openvino_graph.quantized_sources(op)
            if sources and op.get_friendly_name() in names:
                layers.append(Layer(sources, op.get_friendly_name(), ("int8", "float32")))
        return layers

    def quantize(self, kinds: Mapping[str, str] | None = None, lowest: str | None = None) -> Any:
        """Return the model with the ops of these names in float32."""
        if not kinds:
            return self._quantized
        scope = nncf.IgnoredScope(names=[*self._in_float, *kinds], validate=False)
        return _quantize(self._float, self._feed, {**self._settings, "ignored_scope": scope})

    def measure_noise(self, file: Any) -> dict[str, float]:
        """Return the noise-to-signal ratio of the results of ops on the first records."""
        return compare_tensors(zip(self._run(self._float), self._run(file), strict=True))

    def count_bytes(self, file: Any) -> int:
        """Return the size of the constants."""
        return sum(op.get_byte_size() for op in file.get_ops() if op.get_type_name() == "Constant")

    def _run(self, model: Any) -> Iterator[dict[str, NDArray[Any]]]:
        copy = model.clone()  # results of activations would stay in the model
        names = {name for layer in self.layers for name in (layer.output, *layer.inputs)}
        outputs = {op.get_friendly_name(): op.output(0) for op in copy.get_ops() if op.get_friendly_name() in names}
        compiled = compile_model(openvino.Model(list(outputs.values()), copy.get_parameters(), ""))
        for batch in self._feed[:ERROR_RECORDS]:
            yield dict(zip(outputs, compiled(dict(batch)).to_tuple(), strict=True))
