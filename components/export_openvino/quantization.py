"""int8 by NNCF: ranges from real data, a bit left unused where products overflow, and how stable the ranges are."""

import logging
from typing import Any

from tfopt.components.export_openvino import conversion
from tfopt.components.export_openvino.request import Request
from tfopt.conversion import calibration
from tfopt.conversion.calibration import Ranges
from tfopt.conversion.int8_overflow import needs_reduced_range
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line
from tfopt.runtimes.openvino_import import untracked

with untracked():
    import nncf
    from nncf.quantization.advanced_parameters import OverflowFix


def quantize(model: Any, feed: list[Batch], request: Request) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the int8 form of a model, what NNCF was told, and what the model card says of it.

    Args:
        model: An ``openvino.Model`` in floats; it is left as it is.
        feed: Inputs by name, to calibrate on.
        request: What was asked for.

    Raises:
        ComponentError: When NNCF fails, or finds nothing in the model that can be computed in 8 bits.
    """
    logging.getLogger("nncf").setLevel(logging.ERROR)
    if conversion.ops_of(model).get(conversion.ROUNDED):
        raise ComponentError(
            "a model that was quantized already",
            "a model in floats: quantizing twice only adds up two roundings",
            "give the model from before it was quantized, or choose precision='float32' to convert it as it is",
        )
    settings, facts = _settings(model, request)
    try:
        made = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
        stable = calibration.stability(*(_ranges(model, half, settings) for half in calibration.halves(feed)))
    except Exception as error:  # its exceptions share no base
        raise ComponentError(
            f"the quantizer failed: {first_line(error)[:300]}",
            "a graph that NNCF can quantize",
            "choose float32 or float16",
        ) from error
    if not conversion.layers_in_8_bits(made):
        raise ComponentError(
            "precision='int8' for a model without a convolution or matrix product of its own weights",
            "something that can be computed in 8 bits",
            "choose float32 or float16",
        )
    return made, settings, facts | {"stability": stable}


def _settings(model: Any, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what NNCF is told of this model, and what the model card says of that."""
    attention = conversion.has_attention(model)
    preset = request.preset if request.preset != "auto" else "mixed" if attention else "performance"
    reduced = needs_reduced_range() if request.reduce_range == "auto" else request.reduce_range == "on"
    fix = OverflowFix.ENABLE if reduced else OverflowFix.DISABLE
    settings = {
        "preset": nncf.QuantizationPreset[preset.upper()],
        "model_type": nncf.ModelType.TRANSFORMER if attention else None,
        "advanced_parameters": nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    }
    return settings, {"preset": preset, "attention": attention, "reduce_range": reduced}


def _ranges(model: Any, feed: list[Batch], settings: dict[str, Any]) -> Ranges:
    """What each activation is clipped to, found on a part of the data, and without what takes longest."""
    rough = nncf.AdvancedQuantizationParameters(disable_bias_correction=True)
    settings = settings | {"advanced_parameters": rough}
    made = nncf.quantize(model.clone(), nncf.Dataset(feed), subset_size=len(feed), **settings)
    found = {}
    for op in made.get_ops():
        if op.get_type_name() == conversion.ROUNDED:
            low, high = (op.input(place).get_source_output().get_node().get_data() for place in (1, 2))
            found[op.get_friendly_name()] = (float(low.min()), float(high.max()))
    return found
