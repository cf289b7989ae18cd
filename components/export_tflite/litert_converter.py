"""The TFLite converter: one table of what each precision asks of it, and its errors in words."""

import re
from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from tfopt.components.export_tflite.request import Request
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError, first_line

OPS = tf.lite.OpsSet
# The ops and the dtype of inputs and outputs. Ops that have no integer kernel stay in float, and are counted.
INTEGER = {
    "int8": (OPS.TFLITE_BUILTINS_INT8, tf.int8),
    "int16x8": (OPS.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8, tf.int16),
}


def convert(saved_model: Path, request: Request, feed: list[Batch] | None, *, dense_channels: bool = True) -> bytes:
    """Return the flatbuffer of a SavedModel's ``serving_default``.

    Args:
        saved_model: The folder of ``saved_model.pb``. Never a Keras object: the converter may then drop its weights.
        request: What was asked for.
        feed: Real inputs by name to calibrate on, for the integer precisions; None where the ranges were trained.
        dense_channels: Whether each channel of a dense layer has a scale of its own.

    Raises:
        ComponentError: When an op cannot be converted; the ops are named.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=["serving_default"])
    ops = [OPS.TFLITE_BUILTINS]
    if request.precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if request.sparse:
        converter.optimizations = [*converter.optimizations, tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    if request.precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if feed is not None:
        ops.insert(0, INTEGER[request.precision][0])
        converter.representative_dataset = lambda: iter(feed)
    if request.integer_io:
        converter.inference_input_type = converter.inference_output_type = INTEGER[request.precision][1]
    if request.select_tf_ops:
        ops.append(OPS.SELECT_TF_OPS)
    converter.target_spec.supported_ops = ops
    converter._experimental_disable_per_channel_quantization_for_dense_layers = not dense_channels
    try:
        return bytes(converter.convert())
    except Exception as error:
        raise _refusal(error, request) from error


def convert_float(saved_model: Path, request: Request) -> bytes:
    """Return the float32 flatbuffer, to be quantized layer by layer, or looked into. Raises as `convert`."""
    return convert(saved_model, replace(request, precision="float32", integer_io=False, sparse=False), None)


def _refusal(error: Exception, request: Request) -> ComponentError:
    message = str(error)
    custom, select = _named(message, "Custom ops"), _named(message, "TF Select ops")
    no_kernel = sorted(set(re.findall(r"not yet supported for op: '(\w+)'", message)))
    expected = "a model of ops that LiteRT has"
    if custom:
        return ComponentError(
            f"ops that neither LiteRT nor TF Select has: {', '.join(custom)}",
            expected,
            "express them with other ops in the model",
        )
    if select and not request.select_tf_ops:
        return ComponentError(
            f"ops that LiteRT lacks: {', '.join(select)}",
            expected,
            "express them with other ops, or pass --select-tf-ops (select_tf_ops=True) when the Flex "
            "delegate is linked in where the model will run",
        )
    if no_kernel:
        return ComponentError(
            f"ops without a {request.precision} kernel: {', '.join(no_kernel)}",
            f"ops that {request.precision} has",
            "choose another precision",
        )
    return ComponentError(
        f"the converter failed: {first_line(error)[:300]}",
        f"a model that converts to {request.precision}",
        "try another precision; the converter may not know this graph",
    )


def _named(message: str, heading: str) -> list[str]:
    found = re.search(rf"^{heading}: (.+)$", message, re.MULTILINE)
    return sorted(part.strip() for part in found[1].split(",")) if found else []
