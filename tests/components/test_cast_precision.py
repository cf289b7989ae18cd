"""Tests of `cast_precision`: dtypes, errors within tolerance, reverted layers and refusals."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tests.graph.saved_models import control_flow, two_ends
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.cast_precision.cast import revert
from tfopt.components.cast_precision.component import cast_precision
from tfopt.components.configure_runtime.component import configure_runtime
from tfopt.conversion.parameters import Calibration
from tfopt.conversion.verification import verify
from tfopt.errors import ComponentError
from tfopt.execution.parity_check import check_parity
from tfopt.saved_models.saved_model import read

KERNEL = np.random.default_rng(0).normal(size=(64, 4)) / 2


@pytest.fixture(scope="module")
def cast(digits_model, digits_examples, tmp_path_factory):
    """The digits model in float16, measured on real digits."""
    target = tmp_path_factory.mktemp("cast") / "cast"
    return cast_precision(model=digits_model, cast=target, examples=digits_examples)["cast"]


def test_weights_and_arithmetic_are_16_bit_and_the_signature_is_unchanged(cast, digits_model):
    before, after = (runtimes.load(SavedModel(path)) for path in (digits_model, cast.path))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    kinds = types(cast.saved_model)
    assert kinds["Conv2D"] == kinds["DepthwiseConv2dNative"] == kinds["MatMul"] == {"float16"}
    assert kinds["Softmax"] == {"float32"}
    large = [
        node
        for node in read(cast.saved_model).graph.node
        if node.op == "Const" and tf.make_ndarray(node.attr["value"].tensor).size > 16
    ]
    assert {tf.as_dtype(node.attr["dtype"].type).name for node in large} == {"float16"}


def test_outputs_match_within_rounding_and_the_card_has_the_error(cast, digits_model):
    image = np.random.default_rng(0).uniform(0, 16, (20, 8, 8, 1)).astype(np.float32)
    expected, received = (
        runtimes.load(SavedModel(path)).run({"image": image})["digit"] for path in (digits_model, cast.path)
    )
    assert 0 < np.abs(expected - received).max() < 0.01
    verified = cast.card.facts["verified"]
    assert verified["inputs"] == "examples, split 'eval'"
    assert verified["outputs"]["serving_default/digit"]["relative_error"] < 0.01
    assert cast.card.facts["report"]["stays"] == {"kept by request": {"Softmax": 1}}
    assert cast.card.facts["report"]["taken_back"] == {}


def test_bfloat16_with_other_operations_in_float32(digits_model, tmp_path):
    made = cast_precision(model=digits_model, cast=tmp_path / "cast", precision="bfloat16", keep=["Conv2D", "Softmax"])
    kinds = types(made["cast"].saved_model)
    assert kinds["Conv2D"] == kinds["Softmax"] == {"float32"}
    assert kinds["MatMul"] == {"bfloat16"}


def refined(values):
    """Compute in a dtype whose rounding is far above the limits of float32."""
    return {"y": tf.cast(tf.math.sin(values @ tf.constant(KERNEL, values.dtype)), tf.float32)}


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 1e-2), ("bfloat16", 5e-2)])
def test_every_later_step_tolerates_the_rounding_of_its_parent(tmp_path, precision, tolerance):
    """A child in float32, or with other kernels, differs from a parent in 16 bits by the rounding of the parent."""
    for name in (precision, "float32"):
        saved(tmp_path / name, lambda x, name=name: refined(tf.cast(x, name)), x=([None, 64], tf.float32))
    parent, child = (SavedModel(tmp_path / name) for name in (precision, "float32"))
    with runtimes.load(parent) as before, runtimes.load(child) as after:
        verified = verify(before, after, None, None, Calibration(), "float32")
        assert 1e-3 < verified["outputs"]["y"]["relative_error"] < tolerance
        with pytest.raises(ComponentError, match=r"at most 0\.0001"):
            verify(after, before, None, None, Calibration(), "float32")
        with pytest.raises(ComponentError, match=r"at most 0\.0001"):
            verify(before, after, None, None, Calibration(tolerance=1e-4), "float32")
    made = SavedModel(child.path)
    check_parity(configure_runtime, made, {"model": parent}, {})
    assert made.metadata["verified"]["tolerance"] == tolerance
    with pytest.raises(ComponentError, match=r"at most 0\.001"):
        check_parity(configure_runtime, SavedModel(parent.path), {"model": child}, {})


def delicate(folder):
    """Export three layers; the second computes a small difference of large numbers, which 16 bits cannot represent."""
    draw = np.random.default_rng(0)
    first, last = (tf.constant(draw.normal(size=(4, 4)).astype(np.float32)) for _ in range(2))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def serve(x):
        with tf.name_scope("robust"):
            x = tf.tanh(x @ first)
        with tf.name_scope("delicate"):
            x = (x + 3000.0) * 1.5 - 4500.0
        with tf.name_scope("also_robust"):
            return {"y": tf.tanh(x @ last)}

    tf.saved_model.save(tf.Module(), str(folder), signatures=serve)


def test_only_the_layer_with_a_large_error_is_reverted(tmp_path):
    delicate(tmp_path / "model")
    made = cast_precision(model=tmp_path / "model", cast=tmp_path / "cast")["cast"]
    report = made.card.facts["report"]
    assert [name.rpartition("/")[2] for name in report["taken_back"]] == ["delicate"]
    assert max(report["errors_alone"], key=report["errors_alone"].get).endswith("delicate")
    kinds = types(made.saved_model)
    assert kinds["MatMul"] == kinds["Tanh"] == {"float16"}
    assert kinds["Sub"] == {"float32"}


def test_signatures_unknown_dimensions_and_strings_are_preserved(tmp_path):
    two_ends(tmp_path / "model")
    columns = {"zebra": np.random.default_rng(0).normal(size=(8, 6)), "animal": np.array(["dog", "fish"] * 4)}
    write_examples(tmp_path / "examples" / "Split-eval" / "data.gz", columns)
    made = cast_precision(model=tmp_path / "model", cast=tmp_path / "cast", examples=tmp_path / "examples")["cast"]
    for key in ("serving_default", "embed"):
        before, after = (runtimes.load(SavedModel(tmp_path / one), signature=key) for one in ("model", "cast"))
        assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    measured = made.card.facts["verified"]["outputs"]
    assert set(measured) == {"serving_default/number", "serving_default/scores", "embed/embedding"}


def test_constant_out_of_range_stays_in_float32(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def serve(x):
        return {"y": tf.maximum(tf.tanh(x + 1.0) * 1e6, -1e6)}

    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    made = cast_precision(model=tmp_path / "model", cast=tmp_path / "cast")["cast"]
    assert made.card.facts["report"]["stays"] == {
        "has a constant out of the range of float16": {"Maximum": 1, "Mul": 1}
    }


def test_results_that_become_infinite_on_special_values_are_reported(tmp_path, caplog):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def serve(x):
        return {"y": tf.tanh(x) * 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def plain(x):
        return {"y": 1.0 / (tf.abs(x) + 1e-9)}

    for name, function, expected in (("tanh", serve, "at the same places"), ("plain", plain, "inf instead of 1")):
        tf.saved_model.save(tf.Module(), str(tmp_path / name), signatures=function)
        made = cast_precision(model=tmp_path / name, cast=tmp_path / f"{name} cast", tolerance=1.0)
        special = made["cast"].card.facts["report"]["special_values"]
        assert expected in (special if isinstance(special, str) else special[0])
    assert "on special values: serving_default" in caplog.text


def test_bodies_of_control_flow_stay_in_float32(tmp_path):
    control_flow(tmp_path / "model")
    made = cast_precision(model=tmp_path / "model", cast=tmp_path / "cast")["cast"]
    functions = read(made.saved_model).graph.library.function
    inside = {tf.as_dtype(node.attr["T"].type) for one in functions for node in one.node_def if node.op == "MatMul"}
    assert inside == {tf.float32}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": ["Softmaxx"]}, "did you mean Softmax"),
        ({"tolerance": 0.0}, "no layer can be cast within the tolerance"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message, digits_model, tmp_path):
    with pytest.raises(ComponentError, match=message):
        cast_precision(model=digits_model, cast=tmp_path / "cast", **arguments)
    assert not (tmp_path / "cast").exists()


def test_integer_model_and_string_input_without_examples_are_refused(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")])
    def serve(x):
        return {"y": x + 1}

    tf.saved_model.save(tf.Module(), str(tmp_path / "integers"), signatures=serve)
    with pytest.raises(ComponentError, match="nothing to cast: it computes nothing in float32"):
        cast_precision(model=tmp_path / "integers", cast=tmp_path / "cast")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="x")])
    def lengths(x):
        return {"y": tf.cast(tf.strings.length(x), tf.float32)[:, None] @ [[0.5, 2.0]]}

    tf.saved_model.save(tf.Module(), str(tmp_path / "text"), signatures=lengths)
    assert cast_precision(model=tmp_path / "text", cast=tmp_path / "cast")["cast"].metadata["verified"]


def test_text_without_examples_is_drawn_from_the_vocabulary_of_the_graph(tmp_path):
    two_ends(tmp_path / "text")
    cast = cast_precision(model=tmp_path / "text", cast=tmp_path / "cast")["cast"]
    assert cast.card.facts["verified"]["inputs"] == "random inputs"


def test_fewest_layers_with_the_largest_errors_are_reverted():
    costs = {"a/1": 0.1, "b/1": 4.0, "c/1": 0.2, "c/2": 0.1, "d/1": 2.0, "e": 0.05}
    taken_back, alone = revert(set(costs), lambda nodes: sum(costs[name] for name in nodes), 0.5)
    assert taken_back == {"b": {"b/1"}, "d": {"d/1"}}
    assert list(alone) == ["b", "d", "c", "a", "e"]


def test_layers_are_not_measured_alone_if_the_whole_is_within_tolerance():
    calls = []
    assert revert({"a/1", "b/1"}, lambda nodes: calls.append(nodes) or 0.1, 0.5) == ({}, {})
    assert calls == [{"a/1", "b/1"}]


def types(folder) -> dict[str, set[str]]:
    """Return the names of the dtypes of each operation."""
    dtypes: dict[str, set[str]] = {}
    for node in read(folder).graph.node:
        if node.attr["T"].type:
            dtypes.setdefault(node.op, set()).add(tf.as_dtype(node.attr["T"].type).name)
    return dtypes
