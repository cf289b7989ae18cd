"""Test 4-bit weights of export_tflite that are rounded with compensation: integers of the file, and the choice."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from keras import layers

from tests.components.exporters import TFLITE, write_split
from tests.runtimes.formulas import saved
from tfopt.components.export_tflite import layer_quantization, litert_converter
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.components.export_tflite.rounded_kernels import _find, _Tensors, replace_kernels, round_kernels


def stored_weights(content):
    """Return the integers and scales of kernels by the name of the output that they make, or floats and None."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, kernels = file.subgraphs[0], {}
    for op in graph.operators:
        tensors = [graph.tensors[index] for index in op.inputs if index >= 0]
        for tensor in tensors[1:2]:
            data = file.buffers[tensor.buffer].data
            if data is None or len(tensor.shape) < 2:
                continue
            data, scales = np.asarray(data, np.uint8), tensor.quantization and tensor.quantization.scale
            if tensor.type == schema.TensorType.INT4:
                low, high = (data << 4).view(np.int8) >> 4, data.view(np.int8) >> 4
                data = np.stack([low, high], axis=1).ravel()[: np.prod(tensor.shape)]
            values = data.view(np.float32) if scales is None else data.view(np.int8)
            name = graph.tensors[op.outputs[0]].name.decode()
            kernels[name] = values.reshape(tensor.shape), None if scales is None else np.asarray(scales)
    return kernels


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A network of convolutions on images of correlated pixels, their examples, and its float file with a feed."""
    folder, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    image = layers.Input((9, 8, 3), name="x")
    flow = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(image)
    flow = layers.Conv2D(24, (2, 3), dilation_rate=(1, 2), padding="same", activation="relu")(flow)
    flow = layers.Conv2D(16, 3, activation="relu")(flow)
    model = keras.Model(image, layers.Dense(12, name="y")(layers.Flatten()(flow)))
    model.export(folder / "model", verbose=False)
    feed = []
    for split, count in (("eval", 150), ("train", 60)):
        rows = np.cumsum(draw.normal(size=(count, 9, 8, 3)), axis=1).astype(np.float32)
        examples = write_split(folder / "examples", {"x": rows.reshape(count, -1)}, split)
        feed = [{"x": row[None]} for row in rows]
    content = litert_converter.convert_float(folder / "model", TFLiteConversion(precision="int4"))
    return folder / "model", examples, content, feed


def test_the_rows_of_a_kernel_times_its_matrix_are_the_outputs_of_the_file(images):
    _, _, content, feed = images
    tensors, file = _Tensors(content), schema.ModelT.InitFromPackedBuf(content, 0)
    tensors.compute(**feed[0])
    kernels = list(_find(file))
    assert len(kernels) == 4
    for kernel in kernels:
        data = file.buffers[file.subgraphs[0].tensors[kernel.op.inputs[2]].buffer].data
        bias = 0 if data is None else np.asarray(data, np.uint8).view(np.float32)
        outputs = kernel.read_rows(tensors) @ kernel.matrix + bias
        expected = tensors.read(kernel.op.outputs[0]).reshape(outputs.shape)
        if kernel.op.builtinOptions.fusedActivationFunction == schema.ActivationFunctionType.RELU:
            outputs = np.maximum(outputs, 0)
        np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)


def test_the_integers_of_the_file_are_those_that_were_found(images):
    _, _, content, feed = images
    model = layer_quantization.QuantizableModel(content, TFLiteConversion(precision="int4"), feed)
    model._scales = layer_quantization.SCALES[-1]  # of the kernels that are not rounded
    model._rounded, facts = round_kernels(content, feed)
    assert len(model._rounded) == 4 and facts["stays"] == [] and min(facts["removed_noise"].values()) > 0.02
    file = stored_weights(model.quantize())
    for name, kernel in model._rounded.items():
        integers, scales = file[name]
        assert np.abs(integers).reshape(len(kernel), -1).max(axis=1).tolist() == [7] * len(kernel)
        shape = (-1, *[1] * (kernel.ndim - 1))
        np.testing.assert_array_equal(integers, np.rint(kernel / scales.reshape(shape)))
        np.testing.assert_allclose(integers * scales.reshape(shape), kernel, rtol=1e-6)


def test_layers_with_more_bits_have_their_own_weights(images):
    _, _, content, feed = images
    plain, model = (
        layer_quantization.QuantizableModel(content, TFLiteConversion(precision="auto"), feed) for _ in range(2)
    )
    model._rounded, _ = round_kernels(content, feed)
    first, second, third, last = model._rounded
    kinds = {first: "int8", second: "float32", third: "float16"}
    mixed, expected = (stored_weights(form.quantize(kinds)) for form in (model, plain))
    for name in (first, second):
        np.testing.assert_array_equal(mixed[name][0], expected[name][0])
    assert not np.array_equal(mixed[last][0], expected[last][0])
    assert model.quantize({}, "int8") == plain.quantize({}, "int8")


def test_int4_degrades_less_than_with_every_scale(images, tmp_path):
    model, examples, _, _ = images
    facts = TFLITE.export(model, examples, tmp_path / "out", "int4", tolerance=1.0)
    scales = facts["weight_scales"]
    assert scales["used"] == layer_quantization.COMPENSATED and len(scales["rounding"]["removed_noise"]) == 4
    assert scales["noise"][scales["used"]] < 0.8 * min(
        scales["noise"][scale.value] for scale in layer_quantization.SCALES
    )
    assert facts["verified"]["outputs"]["output_0"]["noise"] == pytest.approx(scales["noise"][scales["used"]])


def test_what_degrades_more_is_not_used(images, monkeypatch):
    _, _, content, feed = images
    monkeypatch.setattr(
        layer_quantization,
        "round_kernels",
        lambda content, feed: ({kernel.name: 0 * kernel.weights + 1 for kernel in _kernels(content)}, {}),
    )
    for degradations in ([0.3, 0.1, 0.2, 0.4], [0.3, 0.1, 0.2, 0.05]):
        model = layer_quantization.QuantizableModel(content, TFLiteConversion(precision="int4"), feed)
        left = iter(degradations)
        facts = model.choose_scales(lambda file, left=left: (next(left), 0.0))
        best = [*(scale.value for scale in layer_quantization.SCALES), layer_quantization.COMPENSATED]
        assert facts["used"] == best[int(np.argmin(degradations))]
        assert bool(model._rounded) == (facts["used"] == layer_quantization.COMPENSATED)
    monkeypatch.setattr(layer_quantization, "round_kernels", lambda content, feed: 1 / 0)
    facts = layer_quantization.QuantizableModel(content, TFLiteConversion(precision="int4"), feed).choose_scales(
        lambda file: (0.0, 0.0)
    )
    assert facts["used"] == layer_quantization.SCALES[0].value and "division" in facts["rounding"]["not_measured"]


def _kernels(content):
    return list(_find(schema.ModelT.InitFromPackedBuf(content, 0)))


def test_shared_kernels_and_groups_stay(tmp_path):
    kernel, groups = (np.random.default_rng(0).normal(size=size).astype(np.float32) for size in ((8, 8), (1, 1, 2, 8)))

    def serve(x):
        shared = tf.matmul(tf.nn.relu(tf.matmul(x, kernel)), kernel)
        return {"y": tf.nn.conv2d(tf.reshape(shared, [-1, 1, 2, 4]), groups, 1, "SAME")}

    model = saved(tmp_path / "model", serve, x=([None, 8], tf.float32))
    content = litert_converter.convert_float(model, TFLiteConversion(precision="int4"))
    assert _kernels(content) == []
    feed = [{"x": row[None]} for row in np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)]
    assert round_kernels(content, feed) == ({}, {"removed_noise": {}, "stays": []})
    assert replace_kernels(content, {}) is content
