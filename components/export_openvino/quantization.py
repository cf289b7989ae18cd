"""int8 quantization by NNCF, with the stability of the ranges."""

import logging
from typing import Any

from tfopt.components.export_openvino import openvino_graph
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion import calibration
from tfopt.conversion.int8_overflow import is_range_reduced
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line
from tfopt.runtimes.openvino_import import without_telemetry

with without_telemetry():
    import nncf
    from nncf.quantization.advanced_parameters import OverflowFix


def quantize(
    model: Any, feed: list[Batch], parameters: OpenVINOConversion
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the int8 form of a model, the arguments of NNCF for it, and metadata for the model card.

    Args:
        model: An ``openvino.Model`` in floats; it is not changed.
        feed: Inputs by name, to calibrate on.
        parameters: Preset and range of the weights.

    Raises:
        ComponentError: If NNCF fails, or nothing in the model can be computed in 8 bits.
    """
    logging.getLogger("nncf").setLevel(logging.ERROR)
    if openvino_graph.count_ops(model).get(openvino_graph.FAKE_QUANTIZE):
        raise ComponentError(
            "a model that was quantized already",
            "a float model: quantizing twice adds up two rounding errors",
            "pass the model from before it was quantized, or choose precision='float32' to convert it as it is",
        )
    settings, facts = _settings(model, parameters)
    try:
        quantized = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
        halves = calibration.split_halves(feed)
        stability = calibration.compare_ranges(*(_ranges(model, half, settings) for half in halves))
    except Exception as error:  # its exceptions share no base
        raise ComponentError(
            f"the quantizer failed: {first_line(error)[:300]}",
            "a graph that NNCF can quantize",
            "choose float32 or float16",
        ) from error
    if not openvino_graph.int8_layers(quantized):
        raise ComponentError(
            "precision='int8' for a model without a convolution or matrix product of its own weights",
            "a layer that can be computed in 8 bits",
            "choose float32 or float16",
        )
    return quantized, settings, facts | {"stability": stability}


def _settings(model: Any, parameters: OpenVINOConversion) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of NNCF for this model, and metadata for the model card."""
    attention = openvino_graph.has_attention(model)
    preset = parameters.preset if parameters.preset != "auto" else "mixed" if attention else "performance"
    reduced = is_range_reduced(parameters.reduce_range)
    fix = OverflowFix.ENABLE if reduced else OverflowFix.DISABLE
    settings = {
        "preset": nncf.QuantizationPreset[preset.upper()],
        "model_type": nncf.ModelType.TRANSFORMER if attention else None,
        "advanced_parameters": nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    }
    return settings, {"preset": preset, "attention": attention, "reduce_range": reduced}


def _ranges(model: Any, feed: list[Batch], settings: dict[str, Any]) -> calibration.Ranges:
    """Return the calibrated range of each activation, without bias correction, which takes longest."""
    fast = nncf.AdvancedQuantizationParameters(disable_bias_correction=True)
    settings = settings | {"advanced_parameters": fast}
    quantized = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
    ranges = {}
    for op in quantized.get_ops():
        if op.get_type_name() == openvino_graph.FAKE_QUANTIZE:
            low, high = (op.input(index).get_source_output().get_node().get_data() for index in (1, 2))
            ranges[op.get_friendly_name()] = (float(low.min()), float(high.max()))
    return ranges
