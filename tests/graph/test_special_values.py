"""Tests of the comparison on special values: passes refused by name, parents that fail, `fast_math`."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.errors import ComponentError
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import _differing, values
from tfopt.processes.subprocess_call import run_in_child
from tfopt.saved_models.saved_model import read

FLOATS = ("float16", "bfloat16", "float32", "float64")
HUGE = np.float32(3.4e38)


def spec(name, *shape, dtype="float32"):
    return tf.TensorSpec(shape, dtype, name)


def export(folder, function, *signature):
    tf.saved_model.save(tf.Module(), str(folder), tf.function(function, input_signature=signature))
    return folder


def optimized(folder, function, *signature, **parameters):
    """Return the report, and functions that run the parent and the result as their graphs say."""
    bare = export(folder / "bare", function, *signature)
    made = optimize_graph(bare, folder / "optimized", **parameters)["optimized"]
    parent, child = (read(path) for path in (bare, made.saved_model))
    run = [lambda x, one=one: FrozenRuntime(one, "serving_default").call(x)["y"] for one in (parent, child)]
    return made.card.facts["report"], *run


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("bfloat16", (None,)),
        *(
            pytest.param(dtype, shape, marks=pytest.mark.nightly)
            for dtype, shape in (("float16", (None,)), ("float32", (None,)), ("float64", (None,)), ("float32", ()))
        ),
    ],
    ids=["bfloat16", "float16", "float32", "float64", "scalars"],
)
def test_negated_comparison_stays_since_it_differs_for_nan(tmp_path, dtype, shape):
    inputs = [spec(name, *shape, dtype=dtype) for name in "ab"]
    report, _, child = optimized(tmp_path, lambda a, b: {"y": tf.logical_not(a < b)}, *inputs)
    assert "grappler:arithmetic" in report["taken_back"]
    assert "instead of True on NaN" in report["taken_back"]["grappler:arithmetic"]
    kind = tf.as_dtype(dtype).as_numpy_dtype
    assert child({"a": np.full(shape and (1,), np.nan, kind), "b": np.ones(shape and (1,), kind)}).all()


def test_stage_that_is_refused_runs_on_other_operations(tmp_path):
    def both(a, b):
        return {"y": tf.logical_not(a < b), "z": tf.pow(a, 2.0)}

    passes = ["inference", "without:fold_powers"]
    report, _, child = optimized(tmp_path, both, spec("a", None), spec("b", None), passes=passes)
    assert report["taken_back"]["grappler:arithmetic"].endswith("it ran without rewriting Less")
    row = next(row for row in report["passes"] if row["pass"] == "grappler:arithmetic")
    assert row["by_op"]["Pow"] == [1, 0]
    assert child({"a": np.float32([np.nan]), "b": np.float32([1])}).all()


@pytest.mark.parametrize("name", ["drop_numeric_checks", "grappler:debug_stripper"])
def test_pass_that_removes_checks_is_not_undone_where_the_parent_fails(tmp_path, name):
    def checked(x):
        return {"y": tf.nn.relu(tf.debugging.check_numerics(x, "not finite"))}

    report, _, child = optimized(tmp_path, checked, spec("x", None), passes=["drop_control_edges", name])
    assert report["taken_back"] == {}
    assert next(row for row in report["passes"] if row["pass"] == name)["by_op"]["CheckNumerics"] == [1, 0]
    assert np.isnan(child({"x": np.float32([np.nan])})).all()


def test_grappler_keeps_sums_with_zero_whose_sign_matters(tmp_path):
    passes = ["drop_control_edges", "drop_training_nodes", "grappler:constant_folding"]

    def inverse(x):
        return {"y": 1.0 / (tf.minimum(tf.maximum(x, -0.0), 4.0) + 0.0)}

    report, parent, child = optimized(tmp_path, inverse, spec("x", None), passes=passes)
    assert report["taken_back"] == {}
    x = {"x": np.full(7, -0.0, np.float32)}
    np.testing.assert_array_equal(parent(x), child(x))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        # One for each kind of value; the others are of the same kinds.
        (lambda x: 1.0 / (x + 0.0), -0.0),
        (lambda x: x * 0.0, np.inf),
        (lambda x: (x * 1e30) * 1e-30, HUGE),
        (lambda x: tf.pow(x, 0.5), -np.inf),
        (lambda x: tf.where(tf.not_equal(x, x), 1.0, 2.0), np.nan),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                (lambda x: 1.0 / (0.0 - x), 0.0),
                (lambda x: tf.math.atan2(x + 0.0, -1.0), -0.0),
                (lambda x: x - x, np.inf),
                (lambda x: x / x, 0.0),
                (lambda x: tf.pow(x, -0.5), -0.0),
                (lambda x: tf.sqrt(tf.square(-x)), np.nan),
                (lambda x: tf.nn.relu(tf.nn.relu(x)), np.nan),
                (lambda x: tf.maximum(tf.maximum(x, 1.0), 2.0), np.nan),
                (lambda x: tf.cast(tf.cast(x, "float64"), "float32") * 1.0, -np.inf),
                (lambda x: tf.reduce_max(tf.sqrt(tf.stack([x, 1.0 - x])), 0), 3.0),
            )
        ),
    ],
)
def test_outputs_stay_what_they_are_on_special_values(tmp_path, function, x):
    _, parent, child = optimized(tmp_path, lambda x: {"y": function(x)}, spec("x", 3))
    feed = {"x": np.full(3, x, np.float32)}
    np.testing.assert_array_equal(parent(feed), child(feed))


def test_model_that_fails_on_some_integers_is_compared_on_others(tmp_path):
    inputs = [spec(name, None, 8, dtype="int32") for name in "ab"]
    report, parent, child = optimized(tmp_path, lambda a, b: {"y": (a // b) * 1}, *inputs)
    assert "drop_neutral_elements" in [row["pass"] for row in report["passes"]]
    three, zero = np.full([2, 8], 3, np.int32), np.zeros([2, 8], np.int32)
    np.testing.assert_array_equal(child({"a": 2 * three, "b": three}), 2)
    for run in (parent, child):
        with pytest.raises(tf.errors.InvalidArgumentError, match="zero"):
            run({"a": three, "b": zero})


def test_pass_after_which_an_index_out_of_range_is_accepted_is_refused(tmp_path):
    def first(i):
        return {"y": tf.stack([tf.cast(i, "float32"), tf.gather(tf.constant([1.0, 2.0]), i)])[0]}

    report, _, child = optimized(tmp_path, first, spec("i", None, dtype="int32"))
    assert "outputs instead of InvalidArgumentError" in report["taken_back"]["cancel_lists"]
    with pytest.raises(tf.errors.InvalidArgumentError):
        child({"i": np.array([7], np.int32)})


def test_model_that_returns_nan_for_some_records_is_compared_on_all(tmp_path):
    report, parent, child = optimized(tmp_path, lambda x: {"y": tf.sqrt(x - 0.5) * 1.0 + 0.0}, spec("x", None))
    assert "drop_neutral_elements" in [row["pass"] for row in report["passes"]]
    x = {"x": np.float32([-1, 1, np.inf])}
    np.testing.assert_array_equal(parent(x), child(x))


def test_model_that_always_fails_is_refused(tmp_path):
    bare = export(tmp_path / "bare", lambda i: {"y": tf.gather(tf.constant([1.0]), i + 5)}, spec("i", 2, dtype="int32"))
    with pytest.raises(ComponentError, match="fails on random inputs"):
        optimize_graph(bare, tmp_path / "optimized")


def test_extreme_integers_are_no_sizes_of_tensors(tmp_path):
    report, _, child = optimized(tmp_path, lambda n: {"y": tf.range(n) * 1 + 0}, spec("n", dtype="int32"))
    assert report["taken_back"] == {}
    assert len(child({"n": np.int32(5)})) == 5


def test_operations_that_crash_on_special_values_get_none(tmp_path):
    def crop(image, boxes):
        return {"y": tf.image.crop_and_resize(image, boxes * 1.0, [0], [2, 2], "nearest")}

    report, *_ = optimized(tmp_path, crop, spec("image", 1, 8, 8, 3), spec("boxes", 1, 4))
    assert "CropAndResize" in report["special_values"]
    assert "drop_neutral_elements" in [row["pass"] for row in report["passes"]]


def test_endless_loop_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr("tfopt.graph_checks.special_values.TIMEOUT_S", 0.1)

    def until(x):
        return {"y": tf.while_loop(lambda y: y < x, lambda y: (y + 1.0,), (tf.constant(0.0),))[0] * 1.0}

    report, _, child = optimized(tmp_path, until, spec("x"), passes=["drop_neutral_elements"])
    assert [row["pass"] for row in report["passes"]] == ["drop_neutral_elements"]
    assert child({"x": np.float32(3.5)}) == 4


def test_fast_math_runs_what_holds_for_finite_numbers(tmp_path):
    def five(x):
        common = x * tf.tanh(x) + x * tf.exp(x)
        return {"y": 1.0 / (0.0 + x), "z": tf.logical_not(x < 1.0), "v": x * 0.0, "w": (x * 1e30) * 1e-30, "u": common}

    strict, *_ = optimized(tmp_path / "strict", five, spec("x", 3))
    fast, parent, child = optimized(tmp_path / "fast", five, spec("x", 3), fast_math=True)
    assert "grappler:arithmetic" in strict["taken_back"]
    assert fast["taken_back"] == {}
    fired = {row["pass"] for row in fast["passes"]} - {row["pass"] for row in strict["passes"]}
    expected = {"fold_zero_products", "drop_neutral_elements", "push_constants_together", "share_common_factors"}
    assert expected <= fired
    x = {"x": np.float32([0.5, 1, 2])}
    np.testing.assert_allclose(parent(x), child(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (np.nan, np.nan, True),
        (np.nan, 0.0, False),
        (0.0, np.nan, False),
        (np.inf, -np.inf, False),
        (np.inf, HUGE, False),
        (HUGE, np.inf, False),
        (HUGE, -HUGE, False),
        (0.0, -0.0, True),
        (1e-40, -0.0, True),
        (1.0, 1.00001, True),
        (1.0, 1.01, False),
        (1e-30, 2e-30, False),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_values_are_compared_by_their_class(before, after, is_same, dtype):
    one, other = (np.array([value], dtype) for value in (before, after))
    if dtype == "float64" and before == 1e-40:
        return  # a normal number
    assert bool(_differing(one, other, 1e-4, 0.0)[0]) != is_same


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "uint8", "int64", "uint32", "complex64", "object"])
def test_every_dtype_has_special_values(dtype):
    kind = np.dtype(object) if dtype == "object" else np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    drawn = [
        one
        for name in ("NaN, infinities, zeros and denormals", "the largest floats", "extreme integers and texts")
        if (one := values(kind, name)) is not None
    ]
    assert drawn
    assert all(one.dtype == kind for one in drawn)


def test_maximum_over_no_records_is_compared(tmp_path):
    report, _, child = optimized(tmp_path, lambda x: {"y": tf.reduce_max(x, 0) + 0.0}, spec("x", None, 4))
    assert report["taken_back"] == {}
    assert (child({"x": np.zeros([0, 4], np.float32)}) == -np.inf).all()


def ops_of_a_folded_batch_norm(folder):
    """Optimize a convolution and its batch norm, and return the operations of the result."""
    constants = [np.linspace(0.5, 1.5, 4).astype("float32")] * 4
    kernel = np.linspace(-1, 1, 3 * 3 * 3 * 4).reshape(3, 3, 3, 4).astype("float32")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 5, 5, 3], name="x")
        y = tf.nn.conv2d(x, kernel, 1, "SAME")
        tf.compat.v1.nn.fused_batch_norm(y, *constants, is_training=False, name="y")
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    made = optimize_graph(folder / "graph.pb", folder / "made", inputs=["x"], outputs=["y"])["optimized"]
    return {node.op for node in read(made.path / "Format-Serving").graph.node}


@pytest.mark.parametrize("onednn", [pytest.param("0", marks=pytest.mark.nightly), "1"])
def test_batch_norm_is_folded_though_onednn_convolves_no_records_to_another_shape(onednn, tmp_path):
    if onednn == os.environ["TF_ENABLE_ONEDNN_OPTS"]:
        made = ops_of_a_folded_batch_norm(tmp_path)
    else:
        environment = {"TF_ENABLE_ONEDNN_OPTS": onednn}
        made = run_in_child(ops_of_a_folded_batch_norm, tmp_path, doing="folding", environment=environment)
    assert {"Conv2D", "BiasAdd"} <= made <= {"Conv2D", "BiasAdd", "Const", "Identity", "Placeholder"}
