"""Test export_onnx with precision=dynamic: which layers are in 8 bits, how exact they are, and what is refused."""

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests.components.exporters import ONNX, run, write_split
from tests.runtimes.formulas import saved
from tfopt import keras_models
from tfopt.artifacts import OnnxModel, SavedModel
from tfopt.errors import ComponentError


def graph_of(folder) -> onnx.GraphProto:
    return onnx.load(folder / "Format-Serving" / "model.onnx").graph


def test_an_lstm_a_lookup_a_convolution_and_a_product_are_in_8_bits(tmp_path):
    keras.utils.set_random_seed(1)
    words = keras.Input((12,), dtype="int32", name="words")
    values = keras.layers.Conv1D(24, 3, activation="relu")(keras.layers.Embedding(60, 16)(words))
    values = keras.layers.Bidirectional(keras.layers.LSTM(32))(values)
    model = keras.Model(words, keras.layers.Dense(40)(values))
    keras_models.save(model, tmp_path / "model")
    draw = np.random.default_rng(0)
    examples = write_split(tmp_path / "examples", {"words": draw.integers(0, 60, (64, 12))}, "eval")

    facts = ONNX.export(tmp_path / "model", examples, tmp_path / "out", "dynamic")

    # ONNX Runtime's convolution in 8 bits takes several times as long: only its kernel is stored so.
    expected = {"DynamicQuantizeLSTM": 1, "Conv": 1, "MatMulInteger": 1}
    assert expected.items() <= facts["ops"].items() and "ConvInteger" not in facts["ops"]
    stored = graph_of(tmp_path / "out").initializer
    weights = {tuple(one.dims): one.data_type for one in stored if np.prod(one.dims) > 300}
    assert weights == {
        **dict.fromkeys([(24, 16, 1, 3), (2, 24, 128), (2, 32, 128), (64, 40)], onnx.TensorProto.INT8),
        **{(60, 16): onnx.TensorProto.UINT8, (2, 256): onnx.TensorProto.FLOAT},  # the table, and biases
    }
    (parity,) = facts["verified"]["outputs"].values()
    assert 1e-4 < parity["relative_error"] < 0.05 and parity["correlation"] > 0.995
    rows = {"words": draw.integers(0, 60, (5, 12), np.int32)}
    received, expected = run(OnnxModel(tmp_path / "out"), rows), run(SavedModel(tmp_path / "model"), rows)
    assert np.abs(next(iter(received.values())) - next(iter(expected.values()))).max() < 0.02
    assert 2.5 * (tmp_path / "out/Format-Serving/model.onnx").stat().st_size < facts["float32_bytes"]


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_kernel_is_rounded_to_levels_and_its_inputs_are_not(per_channel, tmp_path):
    draw = np.random.default_rng(4)
    kernel = (draw.normal(size=(3, 3, 2, 5)) * [1, 10, 0.1, 3, 0]).astype(np.float32)  # one channel of zeros

    def convolved(rows, weights):
        return {"y": tf.reduce_max(tf.nn.conv2d(rows, tf.constant(weights, tf.float32), 1, "SAME"), [1, 2])}

    model = saved(tmp_path / "model", lambda x: convolved(x, kernel), x=([None, 6, 6, 2], tf.float32))
    facts = ONNX.export(model, None, tmp_path / "out", "dynamic", per_channel=per_channel)

    assert facts["ops"]["Conv"] == facts["ops"]["DequantizeLinear"] == 1
    largest = np.abs(kernel).max((0, 1, 2) if per_channel else None)
    step = np.where(largest > 0, largest / 127, 1)
    rows = (draw.normal(size=(4, 6, 6, 2)) * [1, 1000]).astype(np.float32)
    expected = convolved(rows, np.rint(kernel / step) * step)["y"]
    received = run(OnnxModel(tmp_path / "out"), {"x": rows})["y"]
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("per_channel", "scales"), [(True, 6), (False, 1)])
@pytest.mark.parametrize(("reduce_range", "most"), [("on", 64), ("off", 127)])
def test_scales_are_per_channel_or_per_tensor_and_one_bit_may_stay_unused(
    per_channel, scales, reduce_range, most, tmp_path
):
    kernel = tf.constant(np.random.default_rng(1).normal(size=(8, 6)), tf.float32)
    model = saved(tmp_path / "model", lambda x: {"y": tf.nn.relu(x) @ kernel}, x=([None, 8], tf.float32))

    facts = ONNX.export(model, None, tmp_path / "out", "dynamic", reduce_range=reduce_range, per_channel=per_channel)

    stored = {one.name: onnx.numpy_helper.to_array(one) for one in graph_of(tmp_path / "out").initializer}
    (weights,) = (array for array in stored.values() if array.shape == (8, 6))
    assert np.abs(weights.astype(int)).max() == most
    assert [array.size for array in stored.values() if array.dtype == np.float32] == [scales]
    assert facts["reduce_range"] is (reduce_range == "on")


def test_the_range_is_that_of_the_whole_batch(tmp_path):
    draw = np.random.default_rng(2)
    kernel = tf.constant(draw.normal(size=(8, 6)), tf.float32)
    model = saved(tmp_path / "model", lambda x: {"y": x @ kernel}, x=([None, 8], tf.float32))
    ONNX.export(model, None, tmp_path / "out", "dynamic")
    rows = draw.normal(size=(2, 8)).astype(np.float32)
    exact = rows[0] @ kernel.numpy()

    alone = run(OnnxModel(tmp_path / "out"), {"x": rows[:1]})["y"][0]
    with_outlier = run(OnnxModel(tmp_path / "out"), {"x": rows * np.float32([[1], [500]])})["y"][0]

    assert np.abs(alone - exact).max() < 0.05 < np.abs(with_outlier - exact).max()


def test_weights_of_which_only_the_shape_of_the_product_is_read_stay_in_float(tmp_path):
    draw = np.random.default_rng(3)
    kernel, only_shape = (tf.constant(draw.normal(size=(5, 5)), tf.float32) for _ in range(2))

    def serve(x):
        return {"y": x @ kernel + tf.cast(tf.reduce_prod(tf.shape(tf.sin(x) @ only_shape)), tf.float32)}

    model = saved(tmp_path / "model", serve, x=([None, 5], tf.float32))
    facts = ONNX.export(model, None, tmp_path / "out", "dynamic")
    assert facts["ops"]["MatMulInteger"] == 1


@pytest.mark.parametrize(
    "function", [tf.sin, lambda x: tf.while_loop(lambda x: tf.reduce_max(x) < 9, lambda x: x @ x, [x])]
)
def test_a_model_without_a_layer_to_quantize_is_refused(function, tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": tf.reshape(function(x), [-1])}, x=([3, 3], tf.float32))
    with pytest.raises(ComponentError, match="without a layer that ONNX Runtime computes in 8 bits") as error:
        ONNX.export(model, None, tmp_path / "out", "dynamic")
    assert error.value.fix == "choose float32"
