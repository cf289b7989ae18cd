import json
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.saved_models import two_ends
from tfopt.components.inspect_model.component import inspect_model
from tfopt.components.inspect_model.flops import FREE, flops
from tfopt.components.inspect_model.report import scopes, text
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models

DRAW = np.random.default_rng(0)


def weight(*shape):
    return tf.constant(DRAW.normal(size=shape).astype(np.float32))


# What is served, the shape of its input, and the operations counted by hand.
COUNTED = {
    # 6x6 values in 5 channels, each of 3x3x4 products and as many sums
    "convolution": (lambda x: tf.nn.conv2d(x, weight(3, 3, 4, 5), 1, "VALID"), (8, 8, 4), 2 * 36 * 5 * 36),
    # stride 2: 4x4 places; two groups, so that each value sees 2 channels
    "grouped": (lambda x: tf.nn.conv2d(x, weight(3, 3, 2, 6), 2, "SAME"), (8, 8, 4), 2 * 16 * 6 * 18),
    # 8 channels of the 4 twice, each of 3x3
    "depthwise": (
        lambda x: tf.nn.depthwise_conv2d(x, weight(3, 3, 4, 2), [1, 1, 1, 1], "SAME"),
        (8, 8, 4),
        2 * 64 * 8 * 9,
    ),
    # each of 8x8x4 values goes into 3x3x5
    "transposed": (
        lambda x: tf.nn.conv2d_transpose(x, weight(3, 3, 5, 4), [1, 16, 16, 5], 2, "SAME"),
        (8, 8, 4),
        2 * 64 * 4 * 45,
    ),
    "volume": (lambda x: tf.nn.conv3d(x, weight(2, 2, 2, 3, 5), [1] * 5, "VALID"), (4, 4, 4, 3), 2 * 27 * 5 * 24),
    # the matrix product, the bias, the activation
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
def test_operations_are_as_many_as_counted_by_hand(name, tmp_path):
    function, shape, expected = COUNTED[name]
    found = inspected(function, shape, tmp_path)
    assert found["flops"]["total"] == expected
    assert found["flops"]["not_counted"] == {}


def test_bytes_are_what_is_read_and_written(tmp_path):
    found = inspected(lambda x: tf.reshape(tf.nn.relu(x) @ weight(7, 10), [-1, 5, 2]), (7,), tmp_path)
    relu, product = 4 * (7 + 7), 4 * (7 + 70 + 10)
    shape_of_the_view = 0
    assert found["bytes_moved"] == relu + product + shape_of_the_view


def test_an_operation_it_does_not_know_is_named_not_guessed(tmp_path):
    found = inspected(lambda x: tf.linalg.inv(x) + 1.0, (3, 3), tmp_path)
    assert found["flops"]["not_counted"] == {"MatrixInverse": 1}
    assert "not counted  1 MatrixInverse" in text(found)
    assert flops("MatrixInverse", {}, [(1, 3, 3)], (1, 3, 3)) is None
    assert flops("Reshape", {}, [], ()) == 0 and "Reshape" in FREE


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> dict:
    """A batch norm that folds, one that does not (an activation is before it), a pruned kernel, odd channels."""
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
            layer.set_weights([DRAW.uniform(0.5, 2, one.shape) for one in layer.get_weights()])
    kernel, bias = model.get_layer("sparse").get_weights()
    kernel[:, :, ::2] = 0
    model.get_layer("sparse").set_weights([kernel, bias])
    folder = tmp_path_factory.mktemp("mixed")
    keras_models.save(model, folder / "model")
    target = folder / "inspection"
    inspect_model(model=folder / "model", inspection=target, budget_mflops=0.1, budget_parameters=10**9)
    return {"keras": model, "folder": folder, "target": target, **json.loads((target / "inspection.json").read_text())}


def test_parameters_are_those_of_keras(mixed):
    assert mixed["parameters"] == {"count": mixed["keras"].count_params(), "bytes": 4 * mixed["keras"].count_params()}


def test_batch_norms_are_counted_and_those_that_stay_say_why(mixed):
    norms = mixed["batch_norms"]
    assert (norms["found"], norms["foldable"]) == (2, 1)
    (stays,) = norms["stay"]
    assert "stays" in stays["batch_norm"]
    assert stays["why"]


def test_zeros_and_odd_channels_are_found(mixed):
    (sparse,) = mixed["sparsity"]["kernels"]
    assert (sparse["zeros"], sparse["size"], sparse["two_of_four"]) == (9 * 4 * 16, 9 * 8 * 16, True)
    odd = {one["node"].split("/")[-2]: (one["reads"], one["gives"]) for one in mixed["channels"]}
    assert set(odd.values()) == {(3, 8), (16, 10)}


def test_what_integers_and_xnnpack_leave_out_is_counted(mixed, tmp_path):
    assert mixed["quantizable"]["flops"] == mixed["xnnpack"]["flops"] == 1.0
    found = inspected(lambda x: tf.sin(x @ weight(4, 4)), (4,), tmp_path)
    assert found["quantizable"]["left_out"] == {"Sin": 1}
    assert found["quantizable"]["flops"] == pytest.approx(32 / 36)
    assert found["quantizable"]["ops"] == 0.5


def test_a_budget_is_held_against_the_model_and_lighter_backbones(mixed):
    backbones = mixed["backbones"]
    assert backbones["task"] == "image classification"
    assert not backbones["model_fits"]
    assert all(
        row["mflops"] <= 0.1 and row["parameters"] < mixed["parameters"]["count"] for row in backbones["fitting"]
    )


def test_lighter_backbones_are_offered_for_an_image_classifier_alone():
    from tfopt.components.inspect_model.backbones import TABLE, lighter
    from tfopt.graph.frozen_model import Endpoint, Signature

    image, scores = Endpoint("x:0", "float32", (None, 112, 112, 3)), Endpoint("y:0", "float32", (None, 10))
    offered = lighter(Signature({"x": image}, {"y": scores}), 26_000_000, 8 * 10**9, 300.0, None)["fitting"]
    expected = {name for name, (_, mflops) in TABLE.items() if mflops / 4 <= 300}
    assert {row["name"] for row in offered} == expected != set(TABLE)
    assert [row["mflops"] for row in offered] == sorted((row["mflops"] for row in offered), reverse=True)
    several = lighter(Signature({"x": image, "z": image}, {"y": scores}), 26_000_000, 8 * 10**9, None, None)
    assert several["task"] is None and several["reason"]


def test_the_text_says_it_in_lines(mixed):
    said = (mixed["target"] / "inspection.txt").read_text()
    assert re.search(r"batch norms +2 found, 1 can be folded", said)
    assert re.search(r"budget +0.1 mflops, 1e\+09 parameters: this model does not fit", said)


def test_the_page_holds_everything_and_asks_for_nothing_outside(mixed):
    page = (mixed["target"] / "report.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|<script", page)
    assert "prefers-color-scheme: dark" in page
    assert all(op in page for op in mixed["ops"])
    assert scopes(mixed["batch_norms"]["stay"][0]["batch_norm"]) in page


def test_a_model_of_text_and_tables_is_inspected_without_counting_how_its_tables_are_filled(tmp_path):
    two_ends(tmp_path / "model")
    inspect_model(model=tmp_path / "model", inspection=tmp_path / "inspection")
    found = json.loads((tmp_path / "inspection" / "inspection.json").read_text())
    assert found["inputs"]["animal"] == "string[?]"
    assert found["flops"]["by_op"]["Einsum"] == 2 * 64 * 3 * 4  # 64 in place of the open length
    assert "InitializeTableFromTextFileV2" not in found["flops"]["not_counted"]
    assert "LookupTableFindV2" in found["quantizable"]["left_out"]
    assert "Einsum" not in found["quantizable"]["left_out"]
    assert found["backbones"]["reason"] == "it has not just one input and one output"


def test_a_keras_file_and_an_exported_model_are_inspected_too(mixed, tmp_path):
    keras_file = mixed["folder"] / "model" / "Format-Keras" / "model.keras"
    inspect_model(model=keras_file, inspection=tmp_path / "keras")
    again = json.loads((tmp_path / "keras" / "inspection.json").read_text())
    assert (again["flops"], again["parameters"]) == (mixed["flops"], mixed["parameters"])


def test_a_lone_tflite_file_and_an_unknown_signature_are_refused(mixed, tmp_path):
    (tmp_path / "alone.tflite").write_bytes(b"TFL3")
    with pytest.raises(ComponentError, match="give the model it was converted from"):
        inspect_model(model=tmp_path / "alone.tflite", inspection=tmp_path / "one")
    with pytest.raises(ComponentError, match="no signature 'serving'"):
        inspect_model(model=mixed["folder"] / "model", inspection=tmp_path / "two", signature="serving")


def inspected(function, shape, folder) -> dict:
    serve = tf.function(lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec([None, *shape], name="x")])
    tf.saved_model.save(tf.Module(), str(folder / "model"), signatures=serve)
    inspect_model(model=folder / "model", inspection=folder / "inspection")
    return json.loads((folder / "inspection" / "inspection.json").read_text())
