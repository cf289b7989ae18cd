"""Test that models with ``keras.ops.argmax``, which reads the sign bits of zeros, can be converted."""

from importlib import import_module

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import ONNX, OPENVINO, TFLITE
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.conversion.core_model import convert_model
from tfopt.saved_models.saved_model import read
from tfopt.saved_models.sign_bits import has_sign_bits, replace_sign_bits

ROWS = np.float32([[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0], [-1.0, 2.0, 2.0], [np.inf, 1.0, 0.0], [-np.inf, -3.0, -2.0]])


@pytest.mark.parametrize("exporter", [TFLITE, ONNX, pytest.param(OPENVINO, marks=pytest.mark.nightly)], ids=str)
def test_the_largest_value_of_keras_is_found_in_every_format(exporter, tmp_path):
    x = keras.Input((3,), name="x")
    keras.Model(x, {"place": keras.ops.argmax(x, -1), "least": keras.ops.argmin(x, -1)}).save(tmp_path / "model.keras")
    convert = import_module(f"tfopt.components.export_{exporter}.export").export
    (tmp_path / "out").mkdir()
    convert_model(convert, Model(tmp_path / "model.keras"), None, tmp_path / "out", exporter.parameters())
    with runtimes.load(Model(tmp_path / "out")) as exported:
        outputs = exported.run({"x": ROWS})
    assert outputs["place"].tolist() == [0, 1, 1, 0, 2] and outputs["least"].tolist() == [2, 2, 0, 2, 0]


def test_other_uses_of_bits_stay(tmp_path):
    def serve(x):
        negative = tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), tf.int32.min) < 0
        return {"y": tf.logical_and(x < 0, negative)}

    graph = read(saved(tmp_path / "model", serve, x=([None], tf.float32))).graph
    assert has_sign_bits(graph) and replace_sign_bits(graph) == graph
