"""Tests of `inspect_model`: counts, obstacles to optimizations, and the report."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.saved_models import two_ends
from tfopt import keras_models
from tfopt.artifacts import Inspection, Model
from tfopt.components.inspect_model.component import inspect_model
from tfopt.components.inspect_model.flops import FREE, count_flops
from tfopt.components.inspect_model.report import render_text, without_scopes
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import COSTS
from tfopt.reports.inspection_report import CostBudget

DRAW = np.random.default_rng(0)


def weight(*shape):
    return tf.constant(DRAW.normal(size=shape).astype(np.float32))


# the served function, the shape of its input, and the number of operations, counted by hand
COUNTED = {
    # 6x6 values in 5 channels, 3x3x4 products and sums for each
    "convolution": (lambda x: tf.nn.conv2d(x, weight(3, 3, 4, 5), 1, "VALID"), (8, 8, 4), 2 * 36 * 5 * 36),
    # stride 2: 4x4 values; two groups, so that each value reads 2 channels
    "grouped": (lambda x: tf.nn.conv2d(x, weight(3, 3, 2, 6), 2, "SAME"), (8, 8, 4), 2 * 16 * 6 * 18),
    # 4 channels twice, 3x3 products and sums for each value
    "depthwise": (
        lambda x: tf.nn.depthwise_conv2d(x, weight(3, 3, 4, 2), [1, 1, 1, 1], "SAME"),
        (8, 8, 4),
        2 * 64 * 8 * 9,
    ),
    # each of 8x8x4 values is added to 3x3x5 values
    "transposed": (
        lambda x: tf.nn.conv2d_transpose(x, weight(3, 3, 5, 4), [1, 16, 16, 5], 2, "SAME"),
        (8, 8, 4),
        2 * 64 * 4 * 45,
    ),
    "volume": (lambda x: tf.nn.conv3d(x, weight(2, 2, 2, 3, 5), [1] * 5, "VALID"), (4, 4, 4, 3), 2 * 27 * 5 * 24),
    # matrix product, bias, activation
    "dense": (lambda x: tf.nn.relu(tf.nn.bias_add(x @ weight(7, 10), weight(10))), (7,), 2 * 7 * 10 + 10 + 10),
    "dense transposed": (lambda x: tf.matmul(x, weight(10, 7), transpose_b=True), (7,), 2 * 7 * 10),
    "attention": (lambda x: tf.matmul(x, x, transpose_b=True), (6, 5), 2 * 6 * 6 * 5),
    "einsum": (lambda x: tf.einsum("bqd,dhe->bqhe", x, weight(5, 2, 3)), (6, 5), 2 * 6 * 5 * 2 * 3),
    "einsum with dots": (lambda x: tf.einsum("...d,de->...e", x, weight(5, 3)), (6, 5), 2 * 6 * 5 * 3),
    "pool": (lambda x: tf.nn.avg_pool(x, 2, 2, "VALID"), (8, 8, 4), 4 * 4 * 4 * 4),
    "mean": (lambda x: tf.reduce_mean(x, [1, 2]), (8, 8, 4), 8 * 8 * 4),
    "views": (lambda x: tf.reshape(tf.transpose(x, [0, 2, 1]), [-1, 30]), (6, 5), 0),
    # constants are computed once, not for each example
    "constants": (lambda x: x * tf.exp(weight(5) * 2.0), (5,), 5),
}


@pytest.mark.parametrize("name", COUNTED)
def test_operations_equal_counts_by_hand(name, tmp_path):
    function, shape, expected = COUNTED[name]
    report = inspect_function(function, shape, tmp_path)
    assert report["flops"]["total"] == expected
    assert report["flops"]["not_counted"] == {}


def test_bytes_moved_are_those_read_and_written(tmp_path):
    report = inspect_function(lambda x: tf.reshape(tf.nn.relu(x) @ weight(7, 10), [-1, 5, 2]), (7,), tmp_path)
    relu, product = 4 * (7 + 7), 4 * (7 + 70 + 10)
    view = 0
    assert report["bytes_moved"] == relu + product + view


def test_unknown_operations_are_named_and_not_counted(tmp_path):
    report = inspect_function(lambda x: tf.linalg.inv(x) + 1.0, (3, 3), tmp_path)
    assert report["flops"]["not_counted"] == {"MatrixInverse": 1}
    assert "not counted  1 MatrixInverse" in render_text(Inspection(tmp_path / "inspection").load())
    assert count_flops("MatrixInverse", {}, [(1, 3, 3)], (1, 3, 3)) is None
    assert count_flops("Reshape", {}, [], ()) == 0 and "Reshape" in FREE


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> dict:
    """Inspect a model with a batch norm that folds, one that follows an activation, a pruned kernel, odd channels."""
    import keras
    from keras import layers

    image = layers.Input((16, 16, 3), name="image")
    flow = layers.Conv2D(8, 3, padding="same", use_bias=False, name="odd")(image)
    flow = layers.BatchNormalization(name="folds")(flow)
    flow = layers.ReLU()(flow)
    flow = layers.BatchNormalization(name="stays")(flow)
    flow = layers.ReLU()(flow)
    flow = layers.Conv2D(16, 3, name="sparse")(flow)
    flow = layers.GlobalAveragePooling2D()(layers.Activation("tanh")(flow))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(flow))
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([DRAW.uniform(0.5, 2, weights.shape) for weights in layer.get_weights()])
    kernel, bias = model.get_layer("sparse").get_weights()
    kernel[:, :, ::2] = 0
    model.get_layer("sparse").set_weights([kernel, bias])
    folder = tmp_path_factory.mktemp("mixed")
    keras_models.save(model, folder / "model")
    target = folder / "inspection"
    inspect_model(model=folder / "model", inspection=target, budget_mflops=0.1, budget_parameters=10**9)
    return {"keras": model, "folder": folder, "target": target, **json.loads((target / "inspection.json").read_text())}


def test_parameters_equal_those_of_keras(mixed):
    assert mixed["parameters"] == {"count": mixed["keras"].count_params(), "bytes": 4 * mixed["keras"].count_params()}


def test_batch_norms_are_counted_with_reasons_of_the_unfoldable_ones(mixed):
    norms = mixed["batch_norms"]
    assert (norms["found"], norms["foldable"]) == (2, 1)
    (unfoldable,) = norms["stay"]
    assert "stays" in unfoldable["batch_norm"]
    assert unfoldable["why"]


def test_zeros_and_unaligned_channels_are_reported(mixed):
    (sparse,) = mixed["sparsity"]["kernels"]
    assert (sparse["zeros"], sparse["size"], sparse["two_of_four"]) == (9 * 4 * 16, 9 * 8 * 16, True)
    assert {(kernel["reads"], kernel["gives"]) for kernel in mixed["channels"]} == {(3, 8), (16, 10)}


def test_a_kernel_with_some_dense_groups_is_not_two_of_four(tmp_path):
    kernel = DRAW.normal(size=(4, 4)).astype(np.float32)
    kernel[:2, 0] = 0  # one of its four groups
    (listed,) = inspect_function(lambda x: x @ kernel, (4,), tmp_path)["sparsity"]["kernels"]
    assert (listed["zeros"], listed["two_of_four"]) == (2, False)


def test_operations_without_integer_or_xnnpack_kernels_are_counted(mixed, tmp_path):
    assert mixed["quantizable"]["flops"] == mixed["xnnpack"]["flops"] == 1.0
    report = inspect_function(lambda x: tf.sin(x @ weight(4, 4)), (4,), tmp_path)
    assert report["quantizable"]["left_out"] == {"Sin": 1}
    assert report["quantizable"]["flops"] == pytest.approx(32 / 36)
    assert report["quantizable"]["ops"] == 0.5


def test_model_and_lighter_backbones_are_compared_with_the_budget(mixed):
    backbones = mixed["backbones"]
    assert backbones["task"] == "image classification"
    assert not backbones["model_fits"]
    assert all(
        row["mflops"] <= 0.1 and row["parameters"] < mixed["parameters"]["count"] for row in backbones["fitting"]
    )


def test_lighter_backbones_are_listed_only_for_image_classifiers():
    from tfopt.components.inspect_model.advice import list_lighter_backbones
    from tfopt.graph.frozen_model import Endpoint, Signature

    image, scores = Endpoint("x:0", "float32", (None, 112, 112, 3)), Endpoint("y:0", "float32", (None, 10))
    classifier = Signature({"x": image}, {"y": scores})
    fitting = list_lighter_backbones(classifier, 26_000_000, 8 * 10**9, CostBudget(300.0, None)).fitting
    expected = {name for name, cost in COSTS.items() if cost.mflops / 4 <= 300}
    assert {row.name for row in fitting} == expected != set(COSTS)
    assert [row.mflops for row in fitting] == sorted((row.mflops for row in fitting), reverse=True)
    two_inputs = Signature({"x": image, "z": image}, {"y": scores})
    others = list_lighter_backbones(two_inputs, 26_000_000, 8 * 10**9, CostBudget(None, None))
    assert others.task is None and others.reason


def test_text_reports_batch_norms_and_budget(mixed):
    text = (mixed["target"] / "inspection.txt").read_text()
    assert re.search(r"batch norms +2 found, 1 can be folded", text)
    assert re.search(r"budget +0.1 mflops, 1e\+09 parameters: this model does not fit", text)


def test_html_report_is_complete_and_self_contained(mixed):
    page = (mixed["target"] / "report.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|<script", page)
    assert "prefers-color-scheme: dark" in page
    assert all(op in page for op in mixed["ops"])
    assert without_scopes(mixed["batch_norms"]["stay"][0]["batch_norm"]) in page


def test_initialization_of_lookup_tables_is_not_counted(tmp_path):
    two_ends(tmp_path / "model")
    inspect_model(model=tmp_path / "model", inspection=tmp_path / "inspection")
    report = json.loads((tmp_path / "inspection" / "inspection.json").read_text())
    assert report["inputs"]["animal"] == "string[?]"
    assert report["flops"]["by_op"]["Einsum"] == 2 * 64 * 3 * 4  # 64 is assumed for the open dimension
    assert "InitializeTableFromTextFileV2" not in report["flops"]["not_counted"]
    assert "LookupTableFindV2" in report["quantizable"]["left_out"]
    assert "Einsum" not in report["quantizable"]["left_out"]
    assert report["backbones"]["reason"] == "the model does not have exactly one input and one output"


@pytest.mark.parametrize("suffix", ["keras", pytest.param("hdf5", marks=pytest.mark.nightly)])
def test_keras_file_gives_the_same_counts(mixed, suffix, tmp_path):
    keras_file = mixed["folder"] / "model" / "Format-Keras" / "model.keras"
    if suffix == "hdf5":
        keras_models.load(Model(keras_file)).save(tmp_path / "model.hdf5")
        keras_file = tmp_path / "model.hdf5"
    inspect_model(model=keras_file, inspection=tmp_path / "keras")
    again = json.loads((tmp_path / "keras" / "inspection.json").read_text())
    assert (again["flops"], again["parameters"]) == (mixed["flops"], mixed["parameters"])


def test_tflite_file_without_its_parent_and_unknown_signature_are_refused(mixed, tmp_path):
    (tmp_path / "alone.tflite").write_bytes(b"TFL3")
    with pytest.raises(ComponentError, match="pass the model that it was converted from"):
        inspect_model(model=tmp_path / "alone.tflite", inspection=tmp_path / "one")
    with pytest.raises(ComponentError, match="no signature 'serving'"):
        inspect_model(model=mixed["folder"] / "model", inspection=tmp_path / "two", signature="serving")


def inspect_function(function, shape, folder) -> dict:
    serve = tf.function(lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec([None, *shape], name="x")])
    tf.saved_model.save(tf.Module(), str(folder / "model"), signatures=serve)
    inspect_model(model=folder / "model", inspection=folder / "inspection")
    return json.loads((folder / "inspection" / "inspection.json").read_text())


def test_one_number_that_is_nan_is_named_and_one_that_is_infinite_is_not(tmp_path):
    import tensorflow as tf

    scale, limit = tf.constant(np.float32(np.nan)), tf.constant(np.float32(-np.inf))
    report = inspect_function(lambda x: tf.maximum(x * scale, limit), [4], tmp_path)
    assert [(weight["size"], weight["nan"], weight["infinite"]) for weight in report["non_finite"]] == [(1, 1, 0)]


def test_weights_that_are_not_finite_are_named(tmp_path):
    import tensorflow as tf

    kernel = np.zeros((4, 3), np.float32)
    kernel[0] = np.nan, np.inf, -np.inf
    module = tf.Module()
    module.kernel = tf.Variable(kernel)
    serve = tf.function(lambda x: {"y": x @ module.kernel}, input_signature=[tf.TensorSpec([None, 4], name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    inspection = inspect_model(tmp_path / "model", tmp_path / "out")["inspection"]
    (weight,) = inspection.load().non_finite
    assert (weight.size, weight.nan, weight.infinite) == (12, 1, 2)
    text = (inspection.path / "inspection.txt").read_text()
    assert f"not finite     {weight.node}: 1 NaN and 2 infinite of 12 values" in text
    assert "Weights that are not finite" in (inspection.path / "report.html").read_text()
