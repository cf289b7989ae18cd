"""Tests that laws preserve functions with TensorFlow 1 control flow, and move no node out of its frame or branch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.frames import in_frames, version_1
from tests.graph.same_function import TOLERANCE, probes
from tests.graph.table import feed, law_applied, ops, view
from tests.graph.test_laws import NAMES, TABLE
from tfopt.graph.law import LocalLaw
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import run
from tfopt.graph.laws import laws
from tfopt.graph.report import Report
from tfopt.graph.session import evaluate, session


def check(names, before) -> int:
    """Apply laws, and compare both graphs with the branch taken in zero, one and two of two iterations."""
    kinds = {tf.as_dtype(node.attr["dtype"].type).name for node in before.node if node.op == "Const"}
    rounding = max(1e-5, *(TOLERANCE.get(kind, 0) for kind in kinds - {"float32"}))
    graph = view(before)
    fired = run(names, graph, Report())
    after, feeds = graph.to_graph_def(), probes(before)
    with session(before) as first, session(after) as second:
        for rounds in (0, 1, 2):
            one, other = (each.run("y:0", {**feeds, "rounds:0": np.float32(rounds)}) for each in (first, second))
            np.testing.assert_allclose(other, one, rtol=rounding, atol=rounding)
    return fired


LOCAL = [
    next((law, row) for law, row in TABLE if law == name and row.fires and not row.unfed)
    for name in NAMES
    if isinstance(laws()[name], LocalLaw)
]
GLOBAL_LAWS = ("fold_constants", "share_equal_nodes", "drop_control_edges", "push_list_constants")


@pytest.mark.parametrize(("law", "row"), LOCAL, ids=[law for law, _ in LOCAL])
def test_local_law_preserves_the_function_of_a_branch_in_a_loop(law, row):
    check([law], in_frames(row.build))


@pytest.mark.parametrize("law", GLOBAL_LAWS)
def test_global_law_preserves_the_function_of_a_branch_in_a_loop(law):
    row = next(row for name, row in TABLE if name == law and row.fires and not row.unfed)
    check([law], in_frames(row.build))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "row", [row for law, row in TABLE if row.fires and not row.unfed and isinstance(laws()[law], LocalLaw)]
)
def test_all_laws_preserve_the_function_of_a_branch_in_a_loop(row):
    check(ORDER, in_frames(row.build))


def two_loops():
    """Return the sum of two loops that differ in their names only and read the same constant."""
    x, kernel = feed(3, 4), tf.constant(np.eye(4) * 0.5 + 0.1, tf.float32)

    def rounds(count):
        body = lambda i, y: (i + 1, tf.tanh(y @ kernel) * 2.0 + tf.exp(tf.constant(0.5)))  # noqa: E731
        return tf.compat.v1.while_loop(lambda i, y: i < count, body, [0, x])[1]

    with version_1():
        return rounds(3) + 2 * rounds(4)


def test_equal_nodes_of_two_loops_stay_separate_and_constants_enter_both():
    with tf.Graph().as_default() as made:
        tf.identity(two_loops(), name="y")
    before = made.as_graph_def()
    graph, report = view(before), Report()
    run(ORDER, graph, report)
    after, feeds = graph.to_graph_def(), probes(before)
    one, other = (evaluate(each, ["y:0"], feeds)[0] for each in (before, after))
    np.testing.assert_allclose(other, one, rtol=1e-6)
    assert len(report.fired["push_constants_through_enter"]) >= 2
    assert ops(after)["MatMul"] == ops(after)["Tanh"] == 2
    assert not ops(after)["Exp"]  # a constant of the body


def neutral(_, branch_value):
    """Subtract zero, computed in one branch only, from a tensor from outside."""
    with tf.control_dependencies([branch_value]):
        return tf.math.subtract(feed(3, 4, name="outside"), tf.constant(0.0))


def absorbed(side, _):
    """Combine one branch, directly after the Switch, with false from outside."""
    return side & tf.constant(False)


@pytest.mark.parametrize("holds", [1.0, -1.0])
@pytest.mark.parametrize(
    ("law", "dtype", "on"),
    [("drop_neutral_elements", "float32", neutral), ("fold_absorbing_elements", "bool", absorbed)],
)
def test_result_that_no_longer_reads_a_branch_is_still_computed_only_in_it(law, dtype, on, holds):
    with tf.Graph().as_default() as made:
        condition = tf.reduce_sum(feed(3, name="p")) > 0
        data = feed(3, 4) if dtype == "float32" else feed(3, 4) > 0
        off, branch = tf.raw_ops.Switch(data=data, pred=condition)
        other = tf.exp(off) if dtype == "float32" else tf.logical_not(off)
        tf.identity(tf.raw_ops.Merge(inputs=[on(branch, tf.identity(branch)), other])[0], name="y")
    before = made.as_graph_def()
    after, fired, _ = law_applied(law, before)
    assert fired == 1
    feeds = {**probes(before), "p:0": np.full(3, holds, np.float32)}
    one, two = (evaluate(each, ["y:0"], feeds)[0] for each in (before, after))
    np.testing.assert_array_equal(one, two)
    assert law_applied(law, after)[1] == 0


def test_control_inputs_of_a_dropped_constant_are_preserved():
    with tf.Graph().as_default() as made:
        with tf.control_dependencies([tf.raw_ops.Assert(condition=feed(name="p") < 0, data=["positive"])]):
            nothing = tf.constant(0.0)
        tf.identity(feed(3) + nothing, name="y")
    after, fired, _ = law_applied("drop_neutral_elements", made.as_graph_def())
    assert fired == 1
    feeds = {"x:0": np.ones(3, np.float32)}
    assert evaluate(after, ["y:0"], {**feeds, "p:0": -1.0})[0].tolist() == [1, 1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="positive"):
        evaluate(after, ["y:0"], {**feeds, "p:0": 1.0})


def output_on_the_dead_side():
    """Return a graph with an output that is never computed."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=tf.constant(False))
    return tf.identity(tf.raw_ops.Merge(inputs=[off, tf.exp(on, name="fetched")])[0])


def later_rounds():
    """Return a loop with a dead first input that gets a value from NextIteration."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=tf.constant(True))
    entered = tf.raw_ops.Enter(data=off, frame_name="frame")
    living = tf.raw_ops.NextIteration(data=tf.raw_ops.Enter(data=tf.sin(on), frame_name="frame"))
    left = tf.raw_ops.Exit(data=tf.raw_ops.Merge(inputs=[entered, living])[0])
    return tf.raw_ops.Merge(inputs=[left, tf.cos(on)])[0]


def merged_constant():
    """Return a loop with a Merge of a constant Enter, which has a value in each iteration."""
    x = tf.raw_ops.Enter(data=feed(), frame_name="frame")
    constant = tf.raw_ops.Enter(data=tf.constant(2.0), frame_name="frame", is_constant=True)
    merge = tf.raw_ops.Merge(inputs=[x, x])[0]
    off, on = tf.raw_ops.Switch(data=merge, pred=tf.raw_ops.LoopCond(input=merge < constant))
    merge.op._update_input(1, tf.raw_ops.NextIteration(data=tf.raw_ops.Merge(inputs=[constant, on])[0]))
    return tf.raw_ops.Exit(data=off)


def waited_switch():
    """Return a graph with a control edge from a Switch of a constant."""
    condition = tf.reduce_sum(feed(3, name="p")) > 0
    off, on = tf.raw_ops.Switch(data=tf.constant([1.0, 2.0]), pred=condition)
    merged = tf.raw_ops.Merge(inputs=[off, tf.exp(on)])[0]
    with tf.control_dependencies([on.op]):
        return tf.abs(feed(2)) + merged


@pytest.mark.parametrize(
    ("law", "build", "because"),
    [
        ("fold_switches", output_on_the_dead_side, "output of the graph is on the dead side"),
        ("fold_switches", later_rounds, "or its next iteration does"),
        ("push_constants_through_enter", merged_constant, "control flow reads it"),
        ("push_constants_through_switch", waited_switch, "carries a control edge"),
    ],
)
def test_undecidable_control_flow_is_not_changed(law, build, because):
    with tf.Graph().as_default() as made:
        tf.identity(build(), name="y")
    outputs = [node.name for node in made.as_graph_def().node if node.name in ("y", "fetched")]
    after, fired, reasons = law_applied(law, made.as_graph_def(), outputs)
    assert not fired
    assert any(because in reason for reason in reasons), reasons
    assert ops(after) == ops(made.as_graph_def())
