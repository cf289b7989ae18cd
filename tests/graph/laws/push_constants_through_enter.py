"""Test cases of `push_constants_through_enter`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.table import feed, holds, refuses, weights


def loop(body, *captured, rounds=3):
    """Build a TensorFlow 1 loop whose body captures tensors."""
    x = feed(3, 4)
    with version_1():
        return tf.compat.v1.while_loop(lambda i, y: i < rounds, lambda i, y: (i + 1, body(y, *captured)), [0, x])[1]


def dense(y, kernel):
    """Apply a dense layer."""
    return tf.tanh(y @ kernel)


def nested():
    """Build two nested loops that read the same constant."""
    kernel = weights(4, 4)

    def body(y):
        inner = tf.compat.v1.while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, tf.sin(z @ kernel)), [0, y])[1]
        return inner + y @ kernel

    return loop(body)


def in_branch():
    """Build a branch in a loop: the branch and the loop capture the constant."""
    kernel, p = weights(4, 4), feed(name="p")
    return loop(lambda y: tf.compat.v1.cond(p > 0, lambda: tf.tanh(y @ kernel), lambda: y - kernel[0]))


def large_outside():
    """Build a loop whose large constant has a reader after the loop."""
    kernel = weights(40, 40)
    x = feed(3, 40)
    with version_1():
        body = lambda i, y: (i + 1, tf.tanh(y @ kernel))  # noqa: E731
        return tf.compat.v1.while_loop(lambda i, y: i < 3, body, [0, x])[1] @ kernel


def frame(**entered):
    """Build a frame without a condition from raw operations."""
    started = tf.raw_ops.Enter(data=tf.exp(feed(3, 4)), frame_name="frame")
    constant = tf.raw_ops.Enter(data=weights(4), frame_name="frame", **entered)
    return tf.raw_ops.Exit(data=started * constant)


def waiting():
    """Build a loop whose constant, but not the loop, waits for an effect."""
    with tf.control_dependencies([tf.raw_ops.Assert(condition=feed(name="p") < 1e9, data=[feed(name="q")])]):
        kernel = tf.constant([1.0, -2.0, 3.0, 0.5])
    return loop(lambda y, kernel: y * kernel, kernel)


def read_by_condition():
    """Build a loop whose condition reads the constant, in one iteration more than the body."""
    x, bound = feed(3, 4), tf.constant(7.0)
    with version_1():
        condition = lambda i, y: (tf.cast(i, tf.float32) < bound) & (tf.reduce_sum(tf.abs(y)) < bound * 9)  # noqa: E731
        return tf.compat.v1.while_loop(condition, lambda i, y: (i + 1, y * 1.25), [0, x])[1]


def raw_loop(update):
    """Build a scalar loop from raw operations, with an Enter of a constant, which `update` reads."""
    start = tf.raw_ops.Enter(data=tf.abs(feed()) + 0.1, frame_name="frame")
    constant = tf.raw_ops.Enter(data=tf.constant(2.0), frame_name="frame", is_constant=True)
    bound = tf.raw_ops.Enter(data=tf.abs(feed(name="bound")) + 9.0, frame_name="frame", is_constant=True)
    merge = tf.raw_ops.Merge(inputs=[start, start])[0]
    off, on = tf.raw_ops.Switch(data=merge, pred=tf.raw_ops.LoopCond(input=merge < bound))
    merge.op._update_input(1, tf.raw_ops.NextIteration(data=update(on, constant, bound)))
    return tf.raw_ops.Exit(data=off)


def with_control_edge(y, constant, _):
    """Return an update with a control edge from the constant."""
    with tf.control_dependencies([constant.op]):
        square = y * y
    return tf.maximum(square, y * constant)


def second_condition(y, constant, bound):
    """Return an update that adds another loop, with its own condition, to the frame."""
    start = tf.raw_ops.Enter(data=tf.abs(feed(name="more")) + 0.1, frame_name="frame")
    merge = tf.raw_ops.Merge(inputs=[start, start])[0]
    _, on = tf.raw_ops.Switch(data=merge, pred=tf.raw_ops.LoopCond(input=merge < bound))
    merge.op._update_input(1, tf.raw_ops.NextIteration(data=on * constant))
    return y * constant


TABLE = [
    holds("a matrix", lambda: loop(dense, weights(4, 4))),
    holds("a loop in a loop", nested, fires=2),
    holds("a branch in a loop", in_branch),
    holds("a constant that the condition reads", read_by_condition),
    holds("raw operations", lambda: raw_loop(lambda y, constant, _: y * constant)),
    refuses("an outgoing control edge", lambda: raw_loop(with_control_edge), because="control edge"),
    refuses("two conditions in one frame", lambda: raw_loop(second_condition), because="no condition of its own"),
    refuses("a large constant with another reader", large_outside, because="stored more than once"),
    refuses("a value of the first iteration only", lambda: frame(), because="first iteration only"),
    refuses("a frame without a condition", lambda: frame(is_constant=True), because="no condition of its own"),
    refuses("a constant that waits for an effect", waiting, because="the loop does not wait for"),
]
