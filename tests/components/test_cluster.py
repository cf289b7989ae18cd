"""Test `cluster`: each kernel has few values, exactly, after fine-tuning and in the exported file."""

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.components.train_modules import DENSE
from tests.lite_files import kernels
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.cluster.cluster_weights import INITIALIZATIONS, share
from tfopt.components.cluster.component import cluster
from tfopt.components.export_onnx.component import export_onnx
from tfopt.components.export_tflite.component import export_tflite
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import Projection


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("module") / "module.py"
    file.write_text(DENSE)
    return file


@pytest.fixture(scope="module")
def pruned(tmp_path_factory, digits_model) -> Path:
    """A model whose dense layer has 50 % zeros."""
    model = keras_models.load(KerasModel(digits_model))
    kernel = model.get_layer("digit").kernel.numpy()
    model.get_layer("digit").kernel.assign(np.where(np.abs(kernel) < np.median(np.abs(kernel)), 0, kernel))
    folder = tmp_path_factory.mktemp("pruned") / "model"
    keras_models.save(model, folder)
    return folder


@pytest.fixture(scope="module")
def clustered(tmp_path_factory, pruned, digits_examples, module) -> KerasModel:
    target = tmp_path_factory.mktemp("clustered") / "model"
    return cluster(pruned, target, digits_examples, module, clusters=8, epochs=1)["clustered"]


def dense(model: KerasModel | Path) -> np.ndarray:
    return keras_models.load(KerasModel(getattr(model, "path", model))).get_layer("digit").kernel.numpy()


def test_without_recover_there_is_no_second_round(clustered):
    assert "recovery" not in clustered.card.facts["fine_tuned"]


def test_each_kernel_has_the_requested_number_of_values_after_fine_tuning(clustered):
    assert [layer["values"] for layer in clustered.card.facts["report"]["layers"]] == [8, 8]
    assert len(np.unique(dense(clustered))) == 8


def test_fine_tuning_moves_values_and_weights_stay_shared(clustered, pruned):
    start = share(dense(pruned), 8, "kmeans_plus_plus", keep_zeros=True, seed=1)
    learned = dense(clustered)
    assert not np.array_equal(start, learned)
    assert all(len(np.unique(learned[start == value])) == 1 for value in np.unique(start))


def test_zeros_stay_zero_and_no_other_weight_becomes_zero(clustered, pruned):
    np.testing.assert_array_equal(dense(clustered) == 0, dense(pruned) == 0)


def test_the_values_survive_export_to_tflite_and_onnx(clustered, tmp_path):
    lite = export_tflite(clustered.path, tmp_path / "lite")["exported"]
    stored = next(kernel for kernel in kernels(lite.tflite) if kernel.shape[0] == 10)
    np.testing.assert_array_equal(stored.T, dense(clustered))
    file = export_onnx(clustered.path, tmp_path / "onnx")["exported"].onnx
    arrays = [onnx.numpy_helper.to_array(item) for item in onnx.load(file).graph.initializer]
    np.testing.assert_array_equal(next(array for array in arrays if array.shape == (128, 10)), dense(clustered))


def test_the_model_card_has_values_bytes_and_batch_norms_that_would_undo_the_sharing(clustered):
    report = clustered.card.facts["report"]
    convolution, digit = report["layers"]
    assert digit["gzipped"] == len(gzip.compress(dense(clustered).tobytes(), 6, mtime=0))
    assert digit["gzipped"] < digit["gzipped_before"] / 3
    assert digit["sparsity"] == pytest.approx(0.5, abs=0.01)
    assert report["unshared_when_folded"] == [convolution["layer"]] == ["conv2d"]
    assert clustered.card.facts["fine_tuned"]["after"]["val_accuracy"] > 0.9


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_each_initialization_converges_to_the_nearest_values(initialization):
    weights = np.random.default_rng(3).normal(size=(40, 50)).astype("float32")
    shared = share(weights, 12, initialization, keep_zeros=True, seed=0)
    values = np.unique(shared)
    assert 10 <= len(values) <= 12
    nearest = values[np.abs(weights[..., None] - values).argmin(-1)]
    assert (nearest == shared).mean() > 0.999  # apart from float32 ties
    for value in values:
        assert value == pytest.approx(float(weights[shared == value].mean()), abs=1e-6)
    assert ((weights - shared) ** 2).mean() < 0.02 * weights.var()


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_two_values_one_is_zero(initialization):
    weights = np.array([[0, 0.5, -0.25], [0, 2.0, 0]], "float32")
    shared = share(weights, 2, initialization, keep_zeros=True, seed=0)
    np.testing.assert_allclose(shared, [[0, 0.75, 0.75], [0, 0.75, 0]])


def test_a_projection_steps_along_the_mean_of_the_gradients():
    kernel = np.array([[1.0, 1.0, -2.0], [0.0, -2.0, 0.0]], "float32")
    gradient = np.array([[0.5, -0.1, 3.0], [7.0, 1.0, -7.5]], "float32")
    stepped = Projection(kernel, zeros=True, clusters=True)(kernel - gradient).numpy()
    np.testing.assert_allclose(stepped, [[0.8, 0.8, -4.0], [0.0, -4.0, 0.0]])


@pytest.mark.parametrize("library", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_nested_models_with_several_inputs_and_outputs_are_clustered(library, tmp_path):
    import importlib

    keras = importlib.import_module(library)
    inner = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(20, "relu", name="inside")], name="inner")
    left, right = keras.layers.Input((6,), name="left"), keras.layers.Input((6,), name="right")
    both = keras.layers.Concatenate()([inner(left), inner(right)])
    outputs = [keras.layers.Dense(size, name=f"out{size}")(both) for size in (3, 1)]
    keras_models.save(keras.Model([left, right], outputs), tmp_path / "model")
    child = cluster(tmp_path / "model", tmp_path / "out", clusters=10)["clustered"]
    layers = {layer["layer"]: (layer["values"], layer["left"]) for layer in child.card.facts["report"]["layers"]}
    assert layers["inner/inside"] == (10, None)
    assert layers["out3"] == (10, None)
    assert layers["out1"] == (40, "40 weights, too few for 10 values") or layers["out1"][0] == 10
    assert child.card.facts["fine_tuned"] == {"reason": "no module: clustered after training, without fine-tuning"}


@pytest.mark.nightly  # daily: the contract of components
def test_keras_2_models_are_fine_tuned_with_the_toolkit(tmp_path, digits_examples, module):
    import tf_keras

    flow = image = tf_keras.Input((8, 8, 1), name="image")
    flow = tf_keras.layers.Dense(16, "relu", name="hidden")(tf_keras.layers.Flatten()(flow))
    model = tf_keras.Model(image, tf_keras.layers.Dense(10, activation="softmax", name="digit")(flow))
    kernel = model.get_layer("hidden").kernel.numpy()
    model.get_layer("hidden").kernel.assign(np.where(np.abs(kernel) < np.median(np.abs(kernel)), 0, kernel))
    keras_models.save(model, tmp_path / "model")
    (tmp_path / "module.py").write_text(DENSE.replace("import keras", "import tf_keras as keras"))
    options = {"clusters": 8, "epochs": 1, "initialization": "linear"}
    child = cluster(tmp_path / "model", tmp_path / "out", digits_examples, tmp_path / "module.py", **options)[
        "clustered"
    ]
    hidden = keras_models.load(child).get_layer("hidden").kernel.numpy()
    assert len(np.unique(hidden)) <= 8
    np.testing.assert_array_equal(hidden[kernel.__abs__() < np.median(np.abs(kernel))], 0)
    assert [layer["values"] <= 8 for layer in child.card.facts["report"]["layers"]] == [True, True]


def test_layers_can_be_selected(digits_model, tmp_path):
    child = cluster(digits_model, tmp_path / "out", layers=["dig*"])["clustered"]
    left = {layer["layer"]: layer["left"] for layer in child.card.facts["report"]["layers"]}
    assert left == {"conv2d": "not one of the selected layers", "digit": None}


def test_clustering_twice_is_refused_with_and_without_a_model_card(clustered, tmp_path):
    with pytest.raises(ComponentError, match="cluster after cluster"):
        cluster(clustered.path, tmp_path / "out")
    with pytest.raises(ComponentError, match="already shared"):
        cluster(clustered.keras, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 1}, "clusters"),
        ({"clusters": 257}, "clusters"),
        ({"clusters": 256, "layers": ["conv2d"]}, "too few for 256 values"),
        ({"layers": ["digits"]}, "did you mean digit"),
    ],
)
def test_invalid_options_are_refused(digits_model, tmp_path, options, message):
    with pytest.raises(ComponentError, match=message):
        cluster(digits_model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_module_needs_examples(digits_model, module, tmp_path):
    with pytest.raises(ComponentError, match="a module without examples"):
        cluster(digits_model, tmp_path / "out", module=module)


def test_a_model_without_keras_form_is_refused(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="no Keras form"):
        cluster(digits_model / "Format-Serving", tmp_path / "out")
