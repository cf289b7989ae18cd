"""A function that is read as a graph and written back is the function that it was; laws reach bodies in bodies."""

import tensorflow as tf
from google.protobuf import text_format

from tests.graph.same_function import assert_same_function
from tests.graph.table import feed, ops, weights
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.function_bodies import read_body, write_body
from tfopt.graph.pass_manager import optimize
from tfopt.graph.report import Report
from tfopt.graph.rewrite_order import ORDER


def rich():
    """A function with nearly everything: state, a control output, several outputs, functions in functions."""
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
        found = inner(x, tf.reduce_mean(both))
        picked = tf.switch_case(which, [lambda: found, lambda: found * state, lambda: x])
        return picked, tf.cond(which > 0, lambda: both, lambda: both * 2.0), which

    return call.get_concrete_function(), state


def test_reading_and_writing_gives_the_same_function():
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
    """All that a function says but where in a program it was written; nodes in the order of their names."""
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
    """A loop in a loop, of which both read one constant that the outer one captured."""
    kernel = weights(4, 4)
    inner = lambda j, z: (j + 1, tf.tanh(z @ (kernel * 2.0)))  # noqa: E731
    outer = lambda i, y: (i + 1, tf.while_loop(lambda j, _: j < 2, inner, (0, y))[1] + y @ kernel)  # noqa: E731
    return tf.while_loop(lambda i, _: i < 3, outer, (0, feed(3, 4)))[1]


def test_constants_reach_a_loop_in_a_loop_and_are_folded_there():
    with tf.Graph().as_default() as made:
        tf.identity(loops(), name="y")
    before, report = made.as_graph_def(), Report()
    end = Endpoint("y:0", "float32", (3, 4))
    signature = Signature({"x": Endpoint("x:0", "float32", (3, 4))}, {"y": end})
    after = optimize(Frozen(before, {"s": signature}), [name for name, _ in ORDER], report).graph
    assert_same_function(before, after)
    bodies = {one.signature.name: ops(Plain(one)) for one in after.library.function}
    assert not any(found["Mul"] for found in bodies.values())  # kernel * 2 is a constant
    assert sum(found["MatMul"] for found in bodies.values()) == 2
    for one in after.library.function:  # of numbers no body has more than what it computes
        assert sum(argument.type == tf.float32.as_datatype_enum for argument in one.signature.input_arg) == 1


class Plain:
    """A function, as `ops` counts the nodes of a graph."""

    def __init__(self, function) -> None:
        self.node = function.node_def
