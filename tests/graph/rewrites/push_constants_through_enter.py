"""Rows for `push_constants_through_enter`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.table import feed, holds, refuses, weights


def loop(body, *captured, rounds=3):
    """A loop of version 1 whose body reads what was made outside of it."""
    x = feed(3, 4)
    with version_1():
        return tf.compat.v1.while_loop(lambda i, y: i < rounds, lambda i, y: (i + 1, body(y, *captured)), [0, x])[1]


def dense(y, kernel):
    """What loops are for."""
    return tf.tanh(y @ kernel)


def nested():
    """A loop in a loop, which reads the constant too."""
    kernel = weights(4, 4)

    def body(y):
        inner = tf.compat.v1.while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, tf.sin(z @ kernel)), [0, y])[1]
        return inner + y @ kernel

    return loop(body)


def in_branch():
    """A branch in a loop, which captures the constant through both."""
    kernel, p = weights(4, 4), feed(name="p")
    return loop(lambda y: tf.compat.v1.cond(p > 0, lambda: tf.tanh(y @ kernel), lambda: y - kernel[0]))


def large_outside():
    """A large constant that is read after the loop too."""
    kernel = weights(40, 40)
    x = feed(3, 40)
    with version_1():
        body = lambda i, y: (i + 1, tf.tanh(y @ kernel))  # noqa: E731
        return tf.compat.v1.while_loop(lambda i, y: i < 3, body, [0, x])[1] @ kernel


def frame(**entered):
    """A frame that was entered by hand, with a condition of its own or none."""
    started = tf.raw_ops.Enter(data=tf.exp(feed(3, 4)), frame_name="frame")
    kept = tf.raw_ops.Enter(data=weights(4), frame_name="frame", **entered)
    return tf.raw_ops.Exit(data=started * kept)


def waiting():
    """A constant that waits for an effect, as the loop does not."""
    with tf.control_dependencies([tf.raw_ops.Assert(condition=feed(name="p") < 1e9, data=[feed(name="q")])]):
        kernel = tf.constant([1.0, -2.0, 3.0, 0.5])
    return loop(lambda y, kernel: y * kernel, kernel)


def last_round():
    """The condition reads the constant, in one round more than the body."""
    x, bound = feed(3, 4), tf.constant(7.0)
    with version_1():
        going = lambda i, y: (tf.cast(i, tf.float32) < bound) & (tf.reduce_sum(tf.abs(y)) < bound * 9)  # noqa: E731
        return tf.compat.v1.while_loop(going, lambda i, y: (i + 1, y * 1.25), [0, x])[1]


def entered(use):
    """A loop of one number made by hand, and in it an Enter of a constant of which something else is made."""
    start = tf.raw_ops.Enter(data=tf.abs(feed()) + 0.1, frame_name="frame")
    constant = tf.raw_ops.Enter(data=tf.constant(2.0), frame_name="frame", is_constant=True)
    bound = tf.raw_ops.Enter(data=tf.abs(feed(name="bound")) + 9.0, frame_name="frame", is_constant=True)
    merge = tf.raw_ops.Merge(inputs=[start, start])[0]
    off, on = tf.raw_ops.Switch(data=merge, pred=tf.raw_ops.LoopCond(input=merge < bound))
    merge.op._update_input(1, tf.raw_ops.NextIteration(data=use(on, constant, bound)))
    return tf.raw_ops.Exit(data=off)


def waited(y, constant, _):
    """Something waits for the constant."""
    with tf.control_dependencies([constant.op]):
        more = y * y
    return tf.maximum(more, y * constant)


def second_condition(y, constant, bound):
    """The frame has another condition, and rounds that this one does not count."""
    start = tf.raw_ops.Enter(data=tf.abs(feed(name="more")) + 0.1, frame_name="frame")
    merge = tf.raw_ops.Merge(inputs=[start, start])[0]
    _, on = tf.raw_ops.Switch(data=merge, pred=tf.raw_ops.LoopCond(input=merge < bound))
    merge.op._update_input(1, tf.raw_ops.NextIteration(data=on * constant))
    return y * constant


TABLE = [
    holds("a matrix", lambda: loop(dense, weights(4, 4))),
    holds("a loop in a loop", nested, fires=2),
    holds("a branch in a loop", in_branch),
    holds("a condition", last_round),
    holds("by hand", lambda: entered(lambda y, constant, _: y * constant)),
    refuses("being waited for", lambda: entered(waited), because="control edge"),
    refuses("two conditions", lambda: entered(second_condition), because="no condition of its own"),
    refuses("a larger one that is read elsewhere", large_outside, because="held more than once"),
    refuses("what comes in the first round only", lambda: frame(), because="first round only"),
    refuses("no condition", lambda: frame(is_constant=True), because="no condition of its own"),
    refuses("one that waits for an effect", waiting, because="the loop does not wait for"),
]
