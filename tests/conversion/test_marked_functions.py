"""Tests of functions that TensorFlow does not inline by itself: compiled by XLA, by the user or by Keras 3."""

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers

from tests.graph.table import ops
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.compile_xla.component import compile_xla
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.saved_models import saved_model
from tfopt.saved_models.marked_functions import XLA

DRAW = np.random.default_rng(0)
ONE, TWO, THREE = (None, 8, 4), (None, 8, 8, 4), (None, 4, 4, 4, 4)


class Nested(tf.Module):
    """A compiled function that is called by another one twice, and once by the signature; a mark without XLA."""

    def __init__(self):
        self.kernel = tf.Variable(DRAW.normal(size=(3, 3, 4, 4)).astype("float32"))
        self.scale, self.shift = (tf.Variable(DRAW.uniform(1, 2, 4).astype("float32")) for _ in range(2))

    @tf.function(jit_compile=True)
    def block(self, x):
        y = tf.nn.conv2d(x, self.kernel, 1, "SAME")
        return tf.compat.v1.nn.fused_batch_norm(y, self.scale, self.shift, self.shift, self.scale, is_training=False)[0]

    @tf.function(jit_compile=True)
    def twice(self, x):
        return self.block(tf.nn.relu(self.block(x)))

    @tf.function(experimental_attributes={"_noinline": True})
    def mean(self, x):
        return tf.reduce_mean(x, [1, 2])

    @tf.function(input_signature=[tf.TensorSpec(TWO, tf.float32, name="x")])
    def serve(self, x):
        return {"y": self.mean(self.twice(x) + self.block(x))}


def _grouped(shape):
    """Return the call of a convolution with groups and a batch norm, as Keras 3 writes it."""
    place = keras.Input(shape[1:], name="x")
    conv = [layers.Conv1D, layers.Conv2D, layers.Conv3D][len(shape) - 3]
    norm = layers.BatchNormalization()
    model = keras.Model(place, norm(conv(4, 3, groups=2, padding="same")(place)))
    norm.set_weights([DRAW.uniform(1, 2, 4).astype("float32") for _ in norm.get_weights()])
    return model


def _convnext(shape):
    place = keras.Input(shape[1:], name="x")
    y = layers.LayerNormalization()(layers.Conv2D(4, 7, padding="same", groups=4)(place))
    y = layers.Dense(4)(layers.Dense(8, activation="gelu")(y))
    return keras.Model(place, layers.GlobalAveragePooling2D()(layers.Add()([place, y])))


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nested") / "model"
    model = Nested()
    tf.saved_model.save(model, str(folder), signatures={"serving_default": model.serve})
    return folder


def _outputs(folder, x):
    return next(iter(runtimes.load(SavedModel(folder)).run({"x": x}).values()))


def _assert_same_onnx(parent, child, x):
    session = onnxruntime.InferenceSession(str(child / "Format-Serving" / "model.onnx"))
    received = session.run(None, {session.get_inputs()[0].name: x})[0]
    np.testing.assert_allclose(received, _outputs(parent, x), atol=1e-5, rtol=1e-5)


def test_functions_of_a_saved_model_are_inlined_and_folded(nested, tmp_path):
    x = DRAW.normal(size=(2, 8, 8, 4)).astype("float32")
    folded = fold_batch_norm(nested, tmp_path / "folded")["folded"]
    assert folded.metadata["folded"] == 1, folded.metadata["report"]
    made = optimize_graph(nested, tmp_path / "made")["optimized"]
    graph = saved_model.read(made.path / "Format-Serving").graph
    assert not graph.library.function
    assert (ops(graph)["Conv2D"], ops(graph)["FusedBatchNormV3"]) == (2, 0)  # the first of three calls is shared
    for child in (folded.path, made.path):
        np.testing.assert_allclose(_outputs(child, x), _outputs(nested, x), atol=1e-4, rtol=1e-5)


@pytest.mark.nightly  # daily: a convolution that Keras compiles
def test_functions_of_a_saved_model_are_exported_to_onnx(nested, tmp_path):
    exported = export_onnx(nested, tmp_path / "exported")["exported"]
    _assert_same_onnx(nested, exported.path, DRAW.normal(size=(2, 8, 8, 4)).astype("float32"))


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        *(pytest.param(_grouped, shape, marks=pytest.mark.nightly) for shape in (ONE, TWO)),
        (_grouped, THREE),
        pytest.param(_convnext, TWO, marks=pytest.mark.nightly),
    ],
)
def test_convolution_that_keras_compiles_is_exported_and_optimized(build, shape, tmp_path):
    parent, x = tmp_path / "model", DRAW.normal(size=(2, *shape[1:])).astype("float32")
    build(shape).export(parent, verbose=False)
    _assert_same_onnx(parent, export_onnx(parent, tmp_path / "exported")["exported"].path, x)
    made = optimize_graph(parent, tmp_path / "made")["optimized"]
    np.testing.assert_allclose(_outputs(made.path, x), _outputs(parent, x), atol=1e-5, rtol=1e-5)
    functions = saved_model.read(made.path / "Format-Serving").graph.library.function
    assert bool(functions) == (shape == THREE)  # TensorFlow runs groups in 3-D by XLA only


@pytest.mark.nightly  # daily: a convolution that Keras compiles
def test_model_that_was_compiled_stays_compiled_and_is_exported(nested, tmp_path):
    compiled = compile_xla(nested, tmp_path / "compiled")["compiled"]
    made = optimize_graph(compiled.path, tmp_path / "made")["optimized"]
    functions = saved_model.read(made.path / "Format-Serving").graph.library.function
    assert [function.attr[XLA].b for function in functions] == [True]
    exported = export_onnx(compiled.path, tmp_path / "exported")["exported"]
    _assert_same_onnx(nested, exported.path, DRAW.normal(size=(2, 8, 8, 4)).astype("float32"))
