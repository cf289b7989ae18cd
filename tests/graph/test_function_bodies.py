"""Tests of function bodies: reading and writing preserves a function, and laws are applied to nested bodies."""

import tensorflow as tf
from google.protobuf import text_format

from tests.graph.same_function import assert_same_function
from tests.graph.table import feed, ops, weights
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.function_bodies import read_body, write_body
from tfopt.graph.law_order import ORDER
from tfopt.graph.law_runner import optimize
from tfopt.graph.report import Report


def rich():
    """Return a function with state, a control output, several outputs, and nested functions."""
    state = tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def inner(x, part):
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, nested(y) + part), (0, x))[1]

    def nested(y):
        return tf.while_loop(lambda j, _: j < 2, lambda j, z: (j + 1, tf.tanh(z) * 2.0), (0, y))[1]

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([], tf.int32)])
    def call(x, which):
        state.assign_add(tf.reduce_sum(x, 0))
        parts = tf.unstack(tf.reshape(x, [2, -1]))
        both = tf.concat([parts[1], parts[0]], 0)
        looped = inner(x, tf.reduce_mean(both))
        picked = tf.switch_case(which, [lambda: looped, lambda: looped * state, lambda: x])
        return picked, tf.cond(which > 0, lambda: both, lambda: both * 2.0), which

    return call.get_concrete_function(), state


def test_reading_and_writing_preserves_the_function():
    concrete, _ = rich()
    made = concrete.graph.as_graph_def()
    library = {one.signature.name: one for one in [*made.library.function, concrete.function_def]}
    assert len(library) > 8
    for function in library.values():
        body = read_body(function, library)
        assert not isinstance(body, str), body
        again = write_body(body, function)
        assert plain(again) == plain(function)
    assert concrete.function_def.control_ret
    assert any(node.op == "AssignAddVariableOp" for node in concrete.function_def.node_def)


def plain(function):
    """Return the text of a FunctionDef without debug information, with nodes sorted by name."""
    copy = type(function)()
    copy.CopyFrom(function)
    nodes = sorted(copy.node_def, key=lambda node: node.name)
    del copy.node_def[:]
    for node in nodes:
        node.ClearField("experimental_debug_info")
        controls = sorted(name for name in node.input if name.startswith("^"))
        node.input[:] = [*(name for name in node.input if not name.startswith("^")), *controls]
    copy.node_def.extend(nodes)
    return text_format.MessageToString(copy)


def loops():
    """Return nested loops that read the same captured constant."""
    kernel = weights(4, 4)
    inner = lambda j, z: (j + 1, tf.tanh(z @ (kernel * 2.0)))  # noqa: E731
    outer = lambda i, y: (i + 1, tf.while_loop(lambda j, _: j < 2, inner, (0, y))[1] + y @ kernel)  # noqa: E731
    return tf.while_loop(lambda i, _: i < 3, outer, (0, feed(3, 4)))[1]


def test_constants_are_folded_in_nested_loops():
    with tf.Graph().as_default() as made:
        tf.identity(loops(), name="y")
    before, report = made.as_graph_def(), Report()
    end = Endpoint("y:0", "float32", (3, 4))
    signature = Signature({"x": Endpoint("x:0", "float32", (3, 4))}, {"y": end})
    after = optimize(Frozen(before, {"s": signature}), ORDER, report).graph
    assert_same_function(before, after)
    bodies = {one.signature.name: ops(Plain(one)) for one in after.library.function}
    assert not any(counts["Mul"] for counts in bodies.values())  # kernel * 2 is a constant
    assert sum(counts["MatMul"] for counts in bodies.values()) == 2
    for one in after.library.function:  # the constants are no longer arguments
        assert sum(argument.type == tf.float32.as_datatype_enum for argument in one.signature.input_arg) == 1


class Plain:
    """A FunctionDef with the attribute ``node`` of a GraphDef, for `ops`."""

    def __init__(self, function) -> None:
        self.node = function.node_def
