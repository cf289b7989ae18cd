"""Tests of models that keep state while they serve: it is saved, used in the same order, and the rest is optimized."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.table import ops
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.cast_precision.component import cast_precision
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.inspect_model.component import inspect_model
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.components.quantize_graph.component import quantize_graph
from tfopt.data.batches import serialize_records
from tfopt.data.tfrecords import write_split
from tfopt.errors import ComponentError
from tfopt.graph_def import nodes
from tfopt.saved_models import saved_model
from tfopt.saved_models.state import WRITES, changes_state

ROWS = [tf.TensorSpec([None, 3], tf.float32, name="x")]
KEY = ["n"]


class Model(tf.Module):
    """A layer with a scale and a bias, which can be folded, variables, and the other kinds of state that are named."""

    def __init__(self, *others):
        self.kernel = tf.Variable(np.random.default_rng(0).normal(size=(3, 3)).astype("float32"))
        self.calls, self.mean = tf.Variable(2.0), tf.Variable(tf.zeros([3]))
        if "mutable table" in others:
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
            self.table.insert(tf.constant(KEY), tf.constant([5], tf.int64))
        if "dense table" in others:
            self.dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)
            self.dense.insert(tf.constant([7, 8], tf.int64), tf.constant([5, 6], tf.int64))
        if "generator" in others:
            self.generator = tf.random.Generator.from_seed(3)

    def layer(self, x):
        return (x @ self.kernel) * [1.0, 2.0, 3.0] + 1.0


def _counter(self, x):
    return {"y": self.layer(x) + self.calls.assign_add(1.0)}


def _moving_average(self, x):
    self.mean.assign(self.mean * 0.9 + 0.1 * tf.reduce_mean(x, 0))
    return {"y": self.layer(x - self.mean), "stateless": self.layer(x)}


def _reads_around_writes(self, x):
    before = self.calls.read_value()
    self.calls.assign_add(1.0)
    between = self.calls.read_value()
    self.calls.assign(self.calls * 2.0)
    return {"y": self.layer(x) * before, "between": tf.identity(between), "sum": between + self.calls}


def _mutable_table(self, x):
    count = self.table.lookup(tf.constant(KEY)) + 1
    self.table.insert(tf.constant(KEY), count)
    return {"y": self.layer(x) + tf.cast(count, tf.float32)}


def _dense_table(self, x):
    count = self.dense.lookup(tf.constant([7, 8], tf.int64)) + 1
    self.dense.insert(tf.constant([7, 8], tf.int64), count)
    return {"y": self.layer(x) + tf.reduce_sum(tf.cast(count, tf.float32))}


def _generator(self, x):
    return {"y": self.layer(x) + self.generator.normal([3])}


def _seeded(self, x):
    return {"y": self.layer(x) + tf.random.normal([3], seed=4)}


def _branch(self, x):
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: self.layer(x) * self.calls.assign_add(2.0), lambda: self.layer(x))
    return {"y": y, "calls": self.calls + 0.0}


def _loop(self, x):
    for _ in tf.range(3):
        x = tf.tanh(self.layer(x))
        self.calls.assign_add(1.0)
    return {"y": x + self.calls}


def _parts(self, x):
    self.mean[1].assign(x[0, 0])
    return {"y": self.layer(x) + self.mean.scatter_nd_add([[0]], [1.0])}


KINDS = {
    "counter": _counter,
    "moving average": _moving_average,
    "reads around writes": _reads_around_writes,
    "mutable table": _mutable_table,
    "dense table": _dense_table,
    "generator": _generator,
    "seeded": _seeded,
    "branch": _branch,
    "loop": _loop,
    "parts": _parts,
}
NIGHTLY = {"counter", "moving average", "dense table", "generator", "parts"}


def _export(folder, call, *others):
    model = Model(*others)
    serve = tf.function(call.__get__(model), input_signature=ROWS)
    tf.saved_model.save(model, str(folder), signatures={"serving_default": serve})
    return folder


def _assert_same_calls(parent, child, tolerance=1e-4):
    first, second = (runtimes.load(SavedModel(path)) for path in (parent, child))
    draw = np.random.default_rng(1)
    for _ in range(4):
        x = draw.normal(size=(2, 3)).astype("float32")
        expected, received = first.run({"x": x}), second.run({"x": x})
        for name, value in expected.items():
            np.testing.assert_allclose(received[name], value, atol=tolerance, rtol=tolerance / 10)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.nightly] if kind in NIGHTLY else []) for kind in KINDS]
)
def test_state_is_used_in_the_same_order_and_the_rest_is_optimized(kind, tmp_path):
    parent = _export(tmp_path / "model", KINDS[kind], kind)
    before = saved_model.read(parent, state=True).graph
    made = optimize_graph(parent, tmp_path / "made")["optimized"]
    after = saved_model.read(made.path / "Format-Serving", state=True).graph
    assert changes_state(after)
    assert ops(after)["Mul"] < ops(before)["Mul"] or "While" in ops(after) or "If" in ops(after)
    writes = [{op: count for op, count in ops(one).items() if WRITES.search(op)} for one in (before, after)]
    assert writes[0] == writes[1]
    _assert_same_calls(parent, made.path)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "counter" else pytest.mark.nightly) for kind in KINDS]
)
def test_state_stays_when_the_rest_is_cast_and_is_inspected(kind, tmp_path):
    parent = _export(tmp_path / "model", KINDS[kind], kind)
    report = inspect_model(parent, tmp_path / "inspection")["inspection"].load()
    assert report.flops.total > 0 or "While" in report.ops or "If" in report.ops
    made = cast_precision(parent, tmp_path / "cast")["cast"]
    graph = saved_model.read(made.path / "Format-Serving", state=True).graph
    assert changes_state(graph)
    assert any(node.op == "Cast" for node in nodes(graph))
    _assert_same_calls(parent, made.path, 0.03)


def test_state_stays_when_the_rest_is_quantized(tmp_path):
    parent = _export(tmp_path / "model", KINDS["counter"])
    rows = np.random.default_rng(2).normal(size=(64, 3)).astype("float32")
    for split in ("train", "eval"):
        write_split(tmp_path / "examples", split, serialize_records({"x": rows}))
    made = quantize_graph(parent, tmp_path / "examples", tmp_path / "made")["quantized"]
    _assert_same_calls(parent, made.path, 0.1)


def test_two_loads_have_their_own_state(tmp_path):
    made = optimize_graph(_export(tmp_path / "model", KINDS["counter"]), tmp_path / "made")["optimized"]
    one, x = runtimes.load(SavedModel(made.path)), np.zeros((1, 3), np.float32)
    values = [float(one.run({"x": x})["y"][0, 0]) for _ in range(2)]
    other = runtimes.load(SavedModel(made.path))
    values += [float(model.run({"x": x})["y"][0, 0]) for model in (other, one)]
    assert values == [4.0, 5.0, 4.0, 6.0]


def test_signatures_share_their_state(tmp_path):
    model = Model()
    serve = tf.function(KINDS["counter"].__get__(model), input_signature=ROWS)
    count = tf.function(lambda: {"calls": model.calls.read_value()}, input_signature=[])
    tf.saved_model.save(model, str(tmp_path / "model"), signatures={"serving_default": serve, "count": count})
    made = optimize_graph(tmp_path / "model", tmp_path / "made")["optimized"]
    loaded = tf.saved_model.load(str(made.path / "Format-Serving"))
    loaded.signatures["serving_default"](x=tf.zeros([1, 3]))
    assert float(loaded.signatures["count"]()["calls"]) == 3.0


def test_variables_by_reference_keep_their_order(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        calls = tf.compat.v1.get_variable("calls", initializer=2.0, use_resource=False)
        before = tf.identity(calls) * 1.0
        with tf.control_dependencies([before]), tf.control_dependencies([calls.assign_add(1.0)]):
            y = tf.matmul(x, tf.ones([3, 3])) * 2.0 + tf.identity(calls) + before
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": y})
    made = optimize_graph(tmp_path / "model", tmp_path / "made")["optimized"]
    _assert_same_calls(tmp_path / "model", made.path)


@pytest.mark.parametrize(("component", "output"), [(optimize_graph, "optimized"), (cast_precision, "cast")])
def test_random_output_is_left_out_of_the_comparison(component, output, tmp_path):
    def noisy(self, x):
        return {"y": self.layer(x), "noise": x + tf.raw_ops.RandomStandardNormal(shape=[3], dtype=tf.float32)}

    made = component(_export(tmp_path / "model", noisy), tmp_path / "made")[output]
    verified = made.metadata["verified"]
    assert list(verified["outputs"]) == ["serving_default/y"]
    assert verified["not_compared"] == {"serving_default/noise": "it differs from run to run of the model"}


def test_model_of_random_outputs_only_is_refused(tmp_path):
    def noisy(self, x):
        return {"noise": self.layer(x) + tf.raw_ops.RandomStandardNormal(shape=[3], dtype=tf.float32)}

    with pytest.raises(ComponentError, match="every output differs from run to run"):
        optimize_graph(_export(tmp_path / "model", noisy), tmp_path / "made")


def test_texts_are_printed_in_their_order(tmp_path, capfd):
    def printing(self, x):
        tf.print("first", tf.shape(x)[0])
        tf.debugging.assert_greater(tf.reduce_sum(x), -1e9)
        y = self.layer(x)
        tf.print("second")
        return {"y": y}

    made = optimize_graph(_export(tmp_path / "model", printing), tmp_path / "made")["optimized"]
    loaded = runtimes.load(SavedModel(made.path))
    capfd.readouterr()
    loaded.run({"x": np.ones((2, 3), np.float32)})
    printed = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("first", "second"))]
    assert printed == ["first 2", "second"]


def test_batch_norm_next_to_a_counter_is_folded(tmp_path):
    def serve(self, x):
        product = tf.nn.conv2d(x[:, None, None, :], tf.reshape(self.kernel, [1, 1, 3, 3]), 1, "VALID")
        norm, _, _ = tf.compat.v1.nn.fused_batch_norm(
            product, [1.0, 2.0, 3.0], [0.0, 1.0, 0.0], [0.1, 0.2, 0.3], [1.0, 2.0, 3.0], is_training=False
        )
        return {"y": tf.reshape(norm, [-1, 3]) + self.calls.assign_add(1.0)}

    parent = _export(tmp_path / "model", serve)
    folded = fold_batch_norm(parent, tmp_path / "folded")["folded"]
    assert folded.metadata["folded"] == 1, folded.metadata["report"]
    _assert_same_calls(parent, folded.path)
