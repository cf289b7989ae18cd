"""Test that what a refused conversion proposes as a fix makes the conversion possible."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import EXPORTERS
from tfopt import runtimes
from tfopt.errors import ComponentError

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A refused conversion: of a function of one input, with the words of the error, and the fix applied to it."""

    format: str
    function: Function
    received: str
    fix: str
    dtype: str = "float32"
    settings: Mapping[str, Any] = field(default_factory=dict)
    fixed_function: Function | None = None
    fixed_settings: Mapping[str, Any] = field(default_factory=dict)
    has_kernel: bool = True


CASES = {
    "LiteRT has the op in another type": Case(
        "tflite",
        lambda x: x + x,
        "ops that LiteRT lacks: AddV2 (float64)",
        "cast their inputs to float32 or int32 in the model",
        dtype="float64",
        fixed_function=lambda x: tf.cast(tf.cast(x, tf.float32) + tf.cast(x, tf.float32), tf.float64),
    ),
    "LiteRT has the op in another type, by another name": Case(
        "tflite",
        lambda x: tf.linalg.matmul(x, x, transpose_b=True),
        "ops that LiteRT lacks: MatMul (float64)",
        "cast their inputs to float32 or int32 in the model",
        dtype="float64",
        fixed_function=lambda x: tf.cast(
            tf.linalg.matmul(tf.cast(x, tf.float32), tf.cast(x, tf.float32), transpose_b=True), tf.float64
        ),
    ),
    "the model was cast to 16 bits": Case(
        "tflite",
        lambda x: tf.cast(tf.cast(x, tf.float16) * 2, tf.float32),
        "ops that LiteRT lacks: Mul (float16)",
        "export the model from before cast_precision (precision=float16",
        fixed_function=lambda x: x * 2,
        fixed_settings={"precision": "float16"},
    ),
    "ONNX has no kernels in bfloat16": Case(
        "onnx",
        lambda x: tf.cast(tf.cast(x, tf.bfloat16) * tf.constant(2.0, tf.bfloat16, [3]), tf.float32),
        "B has inconsistent type tensor(bfloat16)",
        "export the model from before cast_precision",
        fixed_function=lambda x: x * 2,
    ),
    "LiteRT lacks the op": Case(
        "tflite",
        lambda x: tf.roll(x, 1, 1),
        "ops that LiteRT lacks: Roll",
        "express them with other ops",
        fixed_function=lambda x: tf.concat([x[:, -1:], x[:, :-1]], 1),
    ),
    "TensorFlow's kernels in LiteRT": Case(
        "tflite",
        lambda x: tf.roll(x, 1, 1),
        "ops that LiteRT lacks: Roll",
        "or pass --select-tf-ops (select_tf_ops=True)",
        fixed_settings={"select_tf_ops": True},
        has_kernel=False,
    ),
    **{
        f"random outputs, {name}": Case(
            name,
            lambda x: x + tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=tf.float32),  # without a seed
            "output 'y' differs from run to run of the model itself",
            "export it without its random operations",
            fixed_function=lambda x: x + 0.5,
        )
        for name in ("tflite", "onnx", "openvino")
    },
    "ONNX has the op in another type": Case(
        "onnx",
        tf.cumsum,
        "CumSum of int8 values",
        "cast its inputs to float32 or int32 in the model",
        dtype="int8",
        fixed_function=lambda x: tf.cast(tf.cumsum(tf.cast(x, tf.int32)), tf.int8),
    ),
    "ONNX has the op in a newer opset": Case(
        "onnx",
        lambda x: tf.bitwise.bitwise_and(x, x + 1),
        "ops that ONNX lacks, or tf2onnx does not know: BitwiseAnd",
        "pass opset=18",
        dtype="int32",
        settings={"opset": 13},
        fixed_settings={"opset": 18},
    ),
    "ONNX lacks the op": Case(
        "onnx",
        tf.math.bessel_i0e,
        "ops that ONNX lacks, or tf2onnx does not know: BesselI0e",
        "express them with other ops in the model",
        settings={"opset": 17},
        fixed_function=lambda x: tf.exp(-tf.abs(x)) * (1 + x * x / 4),
    ),
    "OpenVINO lacks the op": Case(
        "openvino",
        lambda x: tf.math.bincount(x, minlength=4, maxlength=4, axis=-1),
        "ops that OpenVINO cannot convert: DenseBincount",
        "express them with other ops in the model",
        dtype="int32",
        fixed_function=lambda x: tf.reduce_sum(tf.one_hot(x, 4, dtype=tf.int32), 1),
    ),
}


def save(function: Function, dtype: str, folder):
    module = tf.Module()
    signature = [tf.TensorSpec([None, 3], tf.as_dtype(dtype), "x")]
    module.serve = tf.function(lambda x: {"y": function(x)}, input_signature=signature, autograph=False)
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_the_fix_of_a_refusal_helps(name, tmp_path):
    case = CASES[name]
    exporter = next(one for one in EXPORTERS if one.format == case.format)
    model = save(case.function, case.dtype, tmp_path / "model")
    with pytest.raises(ComponentError) as error:
        exporter.export(model, None, tmp_path / "refused", **case.settings)
    assert case.received in error.value.received
    assert case.fix in error.value.fix
    fixed = save(case.fixed_function or case.function, case.dtype, tmp_path / "fixed")
    exporter.export(fixed, None, tmp_path / "made", **{**case.settings, **case.fixed_settings})
    if case.has_kernel:
        values = np.arange(12).reshape(4, 3).astype(case.dtype) % 4
        with runtimes.load(exporter.artifact(tmp_path / "made")) as runtime:
            (received,) = runtime.run({"x": values}).values()
        expected = (case.fixed_function or case.function)(tf.constant(values))
        np.testing.assert_allclose(received, expected, rtol=1e-5)
