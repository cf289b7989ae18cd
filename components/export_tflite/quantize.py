"""Which quantizer makes the file: LiteRT's converter or, layer by layer, ai-edge-quantizer."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tfopt.components.export_tflite import flatbuffer
from tfopt.components.export_tflite import layer_recipe as recipe
from tfopt.components.export_tflite import litert_converter as conversion
from tfopt.components.export_tflite.dense_scales import lighter
from tfopt.components.export_tflite.request import Request
from tfopt.components.export_tflite.settling import settle
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line

BY_LAYER = ("dynamic", "int4", "int8", "int16x8")  # what layers can be left in float of


def quantize(
    serving: Path,
    request: Request,
    feed: list[Batch] | None,
    calibrated: bool,
    degraded: Callable[[bytes], float],
) -> tuple[bytes, dict[str, Any]]:
    """Return the flatbuffer of a SavedModel, and what the model card says of how it was made.

    Args:
        serving: The SavedModel.
        request: What was asked for.
        feed: Inputs by name.
        calibrated: Whether the feed sets the ranges of the activations.
        degraded: Measures how far a file degrades.

    Raises:
        ComponentError: When an op cannot be converted, nothing is sparse, or the degradation allowed is missed.
    """
    facts: dict[str, Any] = {}
    if calibrated and not request.select_tf_ops:
        facts["stability"] = _stability(conversion.convert_float(serving, request), feed or [])
    most = request.max_degradation
    if request.precision != "int4" and not request.recipe:
        content = conversion.convert(serving, request, feed if calibrated else None)
        _check_sparse(content, request)
        if feed and calibrated and request.precision == "int8" and request.tolerance is None:
            again = partial(conversion.convert, serving, request, feed, dense_channels=False)
            content, said = lighter(content, again, degraded, most)
            facts |= said
        found = None if most is None else degraded(content)
        if found is None or most is None or found <= most:
            return content, facts
        if request.precision not in BY_LAYER or (request.precision == "int8" and not calibrated):
            raise ComponentError(
                f"{request.precision}: degradation {found:.3g}",
                f"at most max_degradation={most:g}",
                "allow more, or choose a higher precision",
            )
    made = recipe.Recipe(
        conversion.convert_float(serving, request), request.precision, feed or [], integer_io=request.integer_io
    )
    made.check(request.recipe)
    if most is None:
        return made.quantized(request.recipe), facts
    content, way = settle(made, list(request.recipe), most, degraded)
    return content, facts | way


def _check_sparse(content: bytes, request: Request) -> None:
    if request.sparse and not flatbuffer.describe(content)["sparse"]:
        raise ComponentError(
            "sparse for a model in which no layer's weights are mostly zeros",
            "a pruned model",
            "prune it first (tfopt prune), or leave sparse out",
        )


def _stability(content: bytes, feed: list[Batch]) -> dict[str, Any]:
    try:
        return recipe.stability(content, feed)
    except Exception as error:  # a fact for the card; that graph is calibrated by LiteRT's own converter
        return {"not_measured": first_line(error)}
