"""Tests of `optimize_graph`: written models, reports, presets, undone passes and errors."""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto

from tests.components.batch_norm_models import inputs_for, randomized
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.components.optimize_graph.parameters import LAWS, PRESETS, read_passes
from tfopt.errors import ComponentError
from tfopt.graph.law_order import OPT_IN
from tfopt.graph.laws import laws
from tfopt.graph.mutable_graph import Tensor
from tfopt.saved_models.saved_model import read

# These tests do not depend on operations that only one Keras version writes.
NIGHTLY_KERAS_2 = pytest.mark.parametrize(
    "exported", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)], indirect=True
)


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def exported(request, tmp_path_factory):
    """A small network whose second batch norm follows no kernel, with moved statistics."""
    keras = importlib.import_module(request.param)
    layers = keras.layers
    image = keras.Input((8, 8, 3), name="image")
    flow = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, name="first")(image)))
    flow = layers.ReLU()(layers.BatchNormalization()(flow))
    flow = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(flow))
    outputs = layers.Dense(5, activation="softmax", name="digit")(layers.Flatten()(layers.Dropout(0.5)(flow)))
    model = randomized(keras.Model(image, outputs))
    folder = tmp_path_factory.mktemp(request.param) / "bare"
    model.export(folder)
    return folder, {"image": inputs_for(model)}


@pytest.fixture(scope="module")
def optimized(exported, tmp_path_factory) -> SavedModel:
    return optimize_graph(exported[0], tmp_path_factory.mktemp("optimized") / "optimized")["optimized"]


# TensorFlow logs the optimizers that Grappler runs on each function of a model. A server runs it in a session.
LOADS = """
import sys
import tensorflow as tf
tf.saved_model.load(sys.argv[1]).signatures["serving_default"](x=tf.ones((2, 8, 8, 3)))
print("in a session", file=sys.stderr)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
    served = meta.signature_def["serving_default"]
    session.run(served.outputs["y"].name, {served.inputs["x"].name: [[[[1.0] * 3] * 8] * 8]})
"""


def fixed_layout_of(folder: Path) -> Path:
    """Write a model of three convolutions with and without a fixed layout, and return the folder of both."""
    kernel = tf.random.normal((3, 3, 3, 3))

    def convolutions(x):
        for _ in range(3):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return {"y": x}

    saved(folder / "plain", convolutions, x=((None, 8, 8, 3), tf.float32))
    optimize_graph(folder / "plain", folder / "fixed", passes=["strip_unused"], fixed_layout=True)
    return folder


def test_a_fixed_layout_is_an_option_of_a_call_that_is_not_inlined(tmp_path):
    folder = fixed_layout_of(tmp_path)
    graph = read_meta_graph(folder / "fixed" / "Format-Serving").graph_def
    functions = {one.signature.name: one for one in graph.library.function}
    (name,) = (name for name, one in functions.items() if any(node.op == "Conv2D" for node in one.node_def))
    assert functions[name].attr["_noinline"].b and functions[name].attr["_tf_data_function"].b
    (call,) = (node for one in functions.values() for node in one.node_def if node.attr["f"].func.name == name)
    options = ConfigProto.FromString(call.attr["config_proto"].s).graph_options.rewrite_options
    assert options.layout_optimizer == options.OFF
    optimize_graph(folder / "fixed", folder / "again", passes=["strip_unused"])  # reads what is in the function
    again = read_meta_graph(folder / "again" / "Format-Serving").graph_def
    assert sum(node.op == "Conv2D" for node in again.node) == 3 and not again.library.function


@pytest.mark.nightly  # a process that loads TensorFlow
def test_grappler_does_not_run_its_layout_optimizer_on_a_fixed_layout(tmp_path):
    folder = fixed_layout_of(tmp_path)
    variables = os.environ | {"TF_CPP_VMODULE": "meta_optimizer=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", LOADS, str(folder / "fixed" / "Format-Serving")]
    text = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stderr
    for part in text.split("in a session\n"):
        items = re.split("Starting optimization for grappler item: ", part)[1:]
        functions = [item for item in items if "fixed_layout" in item.split()[0]]
        graphs = [item for item in items if item not in functions]
        assert graphs and len(functions) == 1
        assert not [line for line in functions[0].splitlines() if "layout: Graph size after" in line]
        largest = max(
            int(size) for item in graphs for size in re.findall(r"layout: Graph size after: (\d+) nodes", item)
        )
        assert largest < 10  # the calls of the function; its own nodes are more


def test_a_fixed_layout_is_refused_for_a_model_with_tables(tmp_path):
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1.0]), 0.0)
    serve = tf.function(lambda word: {"y": module.table.lookup(word)}).get_concrete_function(
        tf.TensorSpec([None], "string")
    )
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=serve)
    with pytest.raises(ComponentError, match="fixed_layout for a model with lookup tables"):
        optimize_graph(tmp_path / "m", tmp_path / "out", fixed_layout=True)


def test_signatures_and_outputs_are_preserved(exported, optimized):
    bare, images = exported
    for key in ("serving_default", "serve"):
        before, after = (runtimes.load(SavedModel(path), signature=key) for path in (bare, optimized.path))
        assert (before.inputs, before.outputs) == (after.inputs, after.outputs)
        assert before.inputs["image"].shape == (None, 8, 8, 3)
        for name in before.outputs:
            assert np.abs(before.run(images)[name] - after.run(images)[name]).max() < 1e-6


def test_report_lists_effects_of_passes_and_remaining_batch_norms(optimized):
    card = SavedModel.open(optimized.path).card.facts
    report = card["report"]
    names = [row["pass"] for row in report["passes"]]
    positions = [LAWS.index(name) for name in names if name in LAWS]
    rounds = 1 + sum(later <= earlier for earlier, later in pairwise(positions))
    assert rounds <= 3  # another round only if a law made an earlier one applicable
    assert {"drop_training_nodes", "fold_shift" if "fold_scale" in names else "fold_batch_norm"} <= set(names)
    assert all(row["error"] < 1e-5 for row in report["passes"])
    dropped = next(row for row in report["passes"] if row["pass"] == "drop_training_nodes")
    assert dropped["by_op"]["Identity"][0] > dropped["by_op"]["Identity"][1]
    assert dropped["nodes"][0] - dropped["nodes"][1] == sum(a - b for a, b in dropped["by_op"].values())
    assert report["taken_back"] == {}
    assert len(report["batch_norms_left"]) == 1  # the function that Keras exports under two keys has one graph
    assert all("follows Relu" in reason for reason in report["batch_norms_left"].values())
    assert card["verified"]["outputs"]
    assert report["passes"][-1]["nodes"][1] == card["nodes"] == int(report["summary"].split()[-1])


@NIGHTLY_KERAS_2
def test_explain_writes_the_unchanged_model_and_the_report(exported, optimized, tmp_path):
    explained = optimize_graph(exported[0], tmp_path / "explained", explain=True)["optimized"]
    assert (explained.saved_model / "saved_model.pb").read_bytes() == (exported[0] / "saved_model.pb").read_bytes()
    assert explained.card.facts["report"]["summary"] == optimized.card.facts["report"]["summary"]
    assert explained.card.facts["explained"]


@pytest.mark.parametrize(
    "exported", ["keras"], indirect=True
)  # tf_keras exports a batch norm as one operation, not two
def test_pass_that_changes_outputs_is_undone_and_reported(exported, tmp_path, monkeypatch):
    from tfopt.graph.matching import linear_ops

    def fold_wrongly(match):
        ones = np.ones(linear_ops.channels(match))
        return linear_ops.Weights(linear_ops.scaled(match, ones), linear_ops.existing_bias(match) + 0.01)

    right = laws()["fold_shift"]
    wrong = linear_ops.folding_law(right.patterns, fold_wrongly)
    monkeypatch.setitem(laws(), "fold_shift", replace(right, when=wrong.when, rewrite=wrong.rewrite))
    bare, images = exported
    passes = ["drop_control_edges", "drop_training_nodes", "fold_constants", "fold_scale", "fold_shift"]
    result = optimize_graph(bare, tmp_path / "optimized", passes=passes)["optimized"]
    assert list(result.card.facts["report"]["taken_back"]) == ["fold_shift"]
    assert "differs by" in result.card.facts["report"]["taken_back"]["fold_shift"]
    assert "fold_scale" in [row["pass"] for row in result.card.facts["report"]["passes"]]
    before, after = (runtimes.load(SavedModel(path)) for path in (bare, result.path))
    for name in before.outputs:
        assert np.abs(before.run(images)[name] - after.run(images)[name]).max() < 1e-6


@NIGHTLY_KERAS_2
def test_failing_pass_does_not_affect_other_passes(exported, tmp_path, monkeypatch):
    def broken(match, make):
        return make.node("Relu", Tensor("nowhere"), like=match.node())

    monkeypatch.setitem(laws(), "drop_training_nodes", replace(laws()["drop_training_nodes"], rewrite=broken))
    passes = ["drop_control_edges", "drop_training_nodes", "share_equal_nodes"]
    report = optimize_graph(exported[0], tmp_path / "optimized", passes=passes)["optimized"].card.facts["report"]
    assert list(report["taken_back"]) == ["drop_training_nodes"]
    assert "nowhere" in report["taken_back"]["drop_training_nodes"]
    assert "share_equal_nodes" in [row["pass"] for row in report["passes"]]


def test_checks_are_removed_unless_excluded_from_the_preset(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def serve(x):
        tf.debugging.assert_less(tf.reduce_max(x), 100.0)
        return {"y": tf.debugging.check_numerics(x, "no number") * 2.0}

    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"), serve)
    invalid = [np.array([np.nan], "float32"), np.array([200.0], "float32")]
    without = optimize_graph(tmp_path / "bare", tmp_path / "without")["optimized"]
    for x in invalid:
        np.testing.assert_array_equal(runtimes.load(SavedModel(without.path)).run({"x": x})["y"], 2 * x)
    words = ["inference", "without:drop_assertions", "without:drop_numeric_checks"]
    checked = optimize_graph(tmp_path / "bare", tmp_path / "with", passes=words)["optimized"]
    for x in invalid:
        with pytest.raises(tf.errors.InvalidArgumentError):
            runtimes.load(SavedModel(checked.path)).run({"x": x})


def test_parent_with_nan_outputs_is_refused_before_any_pass(tmp_path, caplog):
    serve = tf.function(lambda x: {"y": x * np.float32("nan")}, input_signature=[tf.TensorSpec([None], name="x")])
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"), serve)
    with pytest.raises(ComponentError, match="the parent returns NaN"):
        optimize_graph(tmp_path / "bare", tmp_path / "optimized")
    assert "undone" not in caplog.text


def test_tables_assets_and_strings_are_preserved(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\nthree\n")
    module = tf.Module()
    whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    lines = tf.lookup.TextFileInitializer(str(words), tf.string, whole, tf.int64, number)
    module.table = tf.lookup.StaticVocabularyTable(lines, 1)
    module.scale = tf.Variable([1.0, 2.0, 3.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "index")])
    def call(index):
        number = module.table.lookup(tf.gather(tf.constant(["two", "three"]), index))
        return {"value": tf.gather(tf.identity(module.scale) * 1.0, number)}

    tf.saved_model.save(module, str(tmp_path / "bare"), {"serving_default": call})
    words.unlink()
    result = optimize_graph(tmp_path / "bare", tmp_path / "optimized")["optimized"]
    (tmp_path / "bare").rename(tmp_path / "gone")
    outputs = runtimes.load(SavedModel(result.path)).run({"index": np.array([0, 1, 0])})["value"]
    np.testing.assert_array_equal(outputs, [2, 3, 2])


def test_keras_file_is_exported_first(digits_model, tmp_path):
    source = digits_model / "Format-Keras/model.keras"
    result = optimize_graph(source, tmp_path / "o", passes=["portable"])["optimized"]
    assert result.card.facts["report"]["batch_norms_left"] == {}


def test_names_of_passes_are_expanded_and_checked():
    assert read_passes(["portable"]) == list(LAWS)
    assert set(LAWS) | set(OPT_IN) == set(laws())
    assert read_passes(["fold_zero_products"]) == ["fold_zero_products"]
    assert not set(OPT_IN) & {name for preset in PRESETS.values() for name in preset}
    assert set(PRESETS["size"]) <= set(LAWS)
    assert read_passes(["fold_scale", "grappler:layout"]) == ["fold_scale", "grappler:layout"]
    assert read_passes(["portable", "without:fold_scale"]) == [name for name in LAWS if name != "fold_scale"]
    restricted, general = "fold_absorbing_elements", "fold_zero_products"
    assert read_passes([restricted, "fold_scale"], fast_math=True) == [restricted, general, "fold_scale"]
    for excluded in (restricted, general):
        remaining = [name for name in LAWS if name != restricted or excluded == general]
        assert read_passes(["portable", f"without:{excluded}"], fast_math=True) == remaining
    for wrong in (["fold_scales"], [], ["fold_scale", "without:fold_scale"], ["portable", "without:fold_scales"]):
        with pytest.raises(ComponentError, match=r"without:NAME|no pass in"):
            read_passes(wrong)


def test_pass_names_import_no_numpy():
    code = (
        "import sys; from tfopt.components.optimize_graph.parameters import read_passes; "
        "read_passes(['portable']); sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loop_bodies_are_optimized_and_unused_functions_removed(tmp_path):
    module = tf.Module()
    module.scale = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def call(x):
        looped = tf.while_loop(
            lambda i, _: i < 3, lambda i, v: (i + 1, tf.identity(v) * (tf.identity(module.scale) * 0.5) * 2.0), (0, x)
        )[1]
        return {"y": tf.identity(looped) * 1.0}

    tf.saved_model.save(module, str(tmp_path / "bare"), {"serving_default": call})
    result = optimize_graph(tmp_path / "bare", tmp_path / "optimized", passes=["portable"])["optimized"]
    report = result.card.facts["report"]
    assert "functions" not in report["refused"]
    assert report["fired"]["push_constants_into_bodies"]["times"] >= 1
    library = read(result.saved_model).graph.library.function
    body = next(one for one in library if "body" in one.signature.name)
    assert [node.op for node in body.node_def].count("Mul") == 1
    assert len(library) == 2
    outputs = runtimes.load(SavedModel(result.path)).run({"x": np.ones((1, 2), "float32")})["y"]
    np.testing.assert_array_equal(outputs, [[1, 8]])


@pytest.mark.parametrize(
    "kind", ["SimpleRNN", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("LSTM", "GRU"))]
)  # all are loops
def test_recurrent_layers_keep_their_outputs_and_get_constant_weights(kind, tmp_path):
    import keras

    x = keras.Input((None, 5), name="x")
    model = keras.Model(x, keras.layers.Dense(3)(getattr(keras.layers, kind)(6, return_sequences=True)(x)))
    model.export(str(tmp_path / "bare"))
    result = optimize_graph(tmp_path / "bare", tmp_path / "optimized")["optimized"]
    report = result.card.facts["report"]
    assert report["taken_back"] == {}
    assert report["fired"]["push_constants_into_bodies"]["times"] > 2
    inputs = {"x": np.random.default_rng(0).normal(size=(2, 9, 5)).astype("float32")}
    before, after = (runtimes.load(SavedModel(path)).run(inputs) for path in (tmp_path / "bare", result.path))
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, atol=1e-5)
