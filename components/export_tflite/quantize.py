"""Conversion by LiteRT's converter or, layer by layer, by ai-edge-quantizer, and the stability of the ranges."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.export_tflite import flatbuffer, float_part, litert_converter
from tfopt.components.export_tflite.parameters import BY_LAYER, TFLiteConversion
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.exact_values import FloatPart, count_kinds
from tfopt.conversion.mixed_precision import limit_degradation
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

MIN_SAVING, MIN_SAVED_BYTES = 0.02, 4096  # of the file, to justify a second conversion with one scale per dense layer
MAX_EXTRA_DEGRADATION = 0.004  # by that: one of the 256 compared records changes its class

Measure = Callable[[bytes], float]  # the degradation of a file, on records it was not calibrated on


def quantize(
    serving: Path, parameters: TFLiteConversion, feed: list[Batch] | None, calibrated: bool, measure: Measure
) -> tuple[bytes, ConversionFacts]:
    """Return the flatbuffer of a SavedModel, and metadata for the model card.

    ``calibrated`` is True if the feed determines the ranges of the activations.

    Raises:
        ComponentError: If an op cannot be converted, nothing is sparse, or the degradation exceeds the limit.
    """
    facts, floating = _inspect(serving, parameters, feed or []) if calibrated else ({}, FloatPart())
    precision, limit = parameters.precision, parameters.max_degradation
    # LiteRT's quantizer replaces a tensor for all of its readers, ai-edge-quantizer for each of them; and in 16 bits
    # LiteRT's has no list of ops to leave in float.
    by_layer = floating.shared or (bool(floating) and precision == "int16x8")
    if precision not in ("int4", "auto") and not parameters.recipe and not by_layer:
        in_float = floating.operations
        content = litert_converter.convert(serving, parameters, feed if calibrated else None, in_float=in_float)
        if parameters.sparse and not flatbuffer.describe(content)["sparse"]:
            received = "sparse for a model in which no layer's weights are mostly zeros"
            raise ComponentError(received, "a pruned model", "prune it first (tfopt prune), or leave sparse out")
        if feed and calibrated and precision == "int8" and parameters.tolerance is None:
            convert = partial(
                litert_converter.convert, serving, parameters, feed, dense_channels=False, in_float=in_float
            )
            content, scale_facts = choose_dense_scales(content, convert, measure, limit)
            facts |= scale_facts
        degradation = None if limit is None else measure(content)
        if degradation is None or limit is None or degradation <= limit:
            return content, facts
        if precision not in BY_LAYER or (precision == "int8" and not calibrated):
            received = f"{precision}: degradation {degradation:.3g}"
            expected = f"at most max_degradation={limit:g}"
            raise ComponentError(received, expected, "allow more, or choose a higher precision")
    from tfopt.components.export_tflite import layer_quantization  # ai-edge-quantizer takes a quarter of a second

    model = layer_quantization.QuantizableModel(
        litert_converter.convert_float(serving, parameters), precision, feed or [], integer_io=parameters.integer_io
    )
    rules = parameters.rules()
    model.check(rules)
    model.rules = [*layer_quantization.layer_rules(dict.fromkeys(floating.operations, "float32")), *rules]
    if precision in layer_quantization.LOWEST and feed:
        facts["weight_scales"] = model.choose_scales(measure)
    if limit is None:
        return model.quantize(), facts
    mixed = precision == "auto"
    content, degradation_facts = limit_degradation(model, limit, measure, mixed=mixed)
    return content, facts | degradation_facts


def choose_dense_scales(
    content: bytes, convert: Callable[[], bytes], measure: Measure, limit: float | None = None
) -> tuple[bytes, ConversionFacts]:
    """Return the file with one scale for each dense layer if it is notably smaller and degrades little more.

    The scale and zero point of a channel take 12 bytes, and those of its bias another 12. LiteRT loads no file without
    the zero points, although all are 0. In a network of dense layers that is a thirteenth of the 8-bit file.
    Convolutions are not changed: their channels differ more, and have more weights each. Returned is also metadata for
    the model card, which is empty if there was no choice.
    """
    if flatbuffer.dense_scale_bytes(content) < max(MIN_SAVING * len(content), MIN_SAVED_BYTES):
        return content, {}
    smaller = convert()
    degradation = {"channel": measure(content), "layer": measure(smaller)}
    allowed = min(degradation["channel"] + MAX_EXTRA_DEGRADATION, 1.0 if limit is None else limit)
    choice = "layer" if degradation["layer"] <= allowed and len(smaller) < len(content) else "channel"
    sizes = {"channel": len(content), "layer": len(smaller)}
    facts: JsonObject = {"one_for_each": choice, "bytes": sizes, "degradation": degradation}
    return smaller if choice == "layer" else content, {"dense_scales": facts}


def _inspect(serving: Path, parameters: TFLiteConversion, feed: list[Batch]) -> tuple[ConversionFacts, FloatPart]:
    """Return the stability of the ranges for the model card, and the ops to leave in float."""
    content = litert_converter.convert_float(serving, parameters)
    facts: ConversionFacts = {}
    if not parameters.select_tf_ops:
        try:
            facts["stability"] = measure_stability(content, feed)
        except Exception as error:  # only for the model card: LiteRT's own converter calibrates this file
            facts["stability"] = {"not_measured": first_line(error)}
    floating = float_part.find(content)
    if not parameters.integer_io:
        return facts | floating.facts(), floating
    if floating.exact:
        kinds = count_kinds(floating.exact)
        raise ComponentError(
            f"integer_io with operations that need exact values, not {parameters.precision}: {kinds}",
            "a model without such operations on floats, because a device without floats cannot compute them",
            "leave integer_io out, which leaves these operations in float, pass codes by an input of integers, or "
            "compute this part before the model",
        )
    # A device without floats cannot compute a part in float. The comparison judges what rounding the columns costs.
    if floating:
        facts["rounded"] = floating.scaling
    return facts, FloatPart()


def measure_stability(content: bytes, feed: list[Batch]) -> JsonObject:
    """Compare the ranges of a float32 flatbuffer's activations on two disjoint halves of the calibration data."""
    tensors = _activations(content)
    interpreter = Interpreter(
        model_content=content,
        num_threads=1,
        # Of the ops that a delegate computes, only the outputs of the last one would be readable.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    halves = calibration.split_halves(feed)
    return calibration.compare_ranges(*(_ranges(interpreter, tensors, half) for half in halves))


def _ranges(interpreter: Interpreter, tensors: dict[int, str], feed: list[Batch]) -> calibration.Ranges:
    """Return the smallest and the largest value of each tensor in all batches."""
    call = interpreter.get_signature_runner(SERVING_DEFAULT)
    lows, highs = np.full(len(tensors), np.inf), np.full(len(tensors), -np.inf)
    for batch in feed:
        call(**batch)
        arrays = [interpreter.get_tensor(index) for index in tensors]
        lows = np.fmin(lows, [array.min() for array in arrays])
        highs = np.fmax(highs, [array.max() for array in arrays])
    ends = zip(lows.tolist(), highs.tolist(), strict=True)
    return dict(zip(tensors.values(), ends, strict=True))


def _activations(content: bytes) -> dict[int, str]:
    """Return the names of the float tensors that are inputs or results of operations, by index."""
    graph = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0]
    indices = [*graph.inputs, *(index for op in graph.operators for index in op.outputs)]
    tensors = {int(index): graph.tensors[index] for index in indices}
    return {
        index: tensor.name.decode() for index, tensor in tensors.items() if tensor.type == schema.TensorType.FLOAT32
    }
