"""Rows for `fold_switches`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.laws.fuse_map_loops import plain
from tests.graph.table import feed, holds, refuses


def cond(condition, *, x=None, index=False):
    """Return a tf.cond of version 1: Switches, a Merge, and constants with control edges from their sides."""
    x = feed(3, 4) if x is None else x
    off, on = tf.raw_ops.Switch(data=x, pred=condition)
    with tf.control_dependencies([tf.identity(on, name="pivot")]):
        scale = tf.constant([1.0, -2.0, 0.5, 3.0])
    true_side, other = tf.nn.relu(on) * scale, tf.tanh(off) + 1.0
    merged = tf.raw_ops.Merge(inputs=[other, true_side])
    return tf.cast(merged[1], tf.float32) * merged[0] if index else merged[0]


def constant_condition(value):
    """A condition."""
    return tf.constant(value)


def straight(value):
    """The dead side is the switch itself: nothing is between it and the merge."""
    x = feed(3, 4)
    off, on = tf.raw_ops.Switch(data=x, pred=constant_condition(value))
    return tf.raw_ops.Merge(inputs=[off, tf.exp(on)])[0]


def nested():
    """A condition on the live side of another."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=constant_condition(True))
    return tf.raw_ops.Merge(inputs=[tf.exp(off), cond(constant_condition(False), x=on)])[0]


def buried():
    """A condition on the dead side of another."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=constant_condition(True))
    return tf.raw_ops.Merge(inputs=[cond(tf.reduce_sum(off) > 0, x=off), tf.sin(on)])[0]


def three(index=False):
    """Return a Merge of three inputs, where two may be live."""
    x = feed(3, 4)
    off, on = tf.raw_ops.Switch(data=x, pred=constant_condition(True))
    first, second = tf.raw_ops.Switch(data=on, pred=tf.reduce_sum(x) > 0)
    merged, which = tf.raw_ops.Merge(inputs=[off, tf.exp(first), tf.sin(second)])
    return tf.cast(which, tf.float32) * merged if index else merged


def frame():
    """The dead side enters a loop, and leaves it at once."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=constant_condition(True))
    left = tf.raw_ops.Exit(data=tf.raw_ops.Enter(data=tf.exp(off), frame_name="frame"))
    return tf.raw_ops.Merge(inputs=[left, tf.sin(on)])[0]


def with_loop(value):
    """A branch with a loop."""

    def rounds(x):
        return tf.compat.v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y) * 2.0), [0, x])[1]

    def build():
        x = feed(3, 4)
        with version_1():
            return tf.compat.v1.cond(constant_condition(value), lambda: rounds(x), lambda: tf.sin(x))

    return plain(build)


def in_loop(value):
    """A condition in each round, and what asks which side it was."""

    def body(i, y):
        off, on = tf.raw_ops.Switch(data=y, pred=constant_condition(value))
        merged, which = tf.raw_ops.Merge(inputs=[tf.exp(-off), tf.tanh(on) + 1.0])
        return i + 1, merged + tf.cast(which, tf.float32)

    with version_1():
        return tf.compat.v1.while_loop(lambda i, y: i < 3, body, [0, feed(3, 4)])[1]


def after_dead():
    """Return nodes that remain, with a control edge from the dead side."""
    x = feed(3, 4)
    off, on = tf.raw_ops.Switch(data=x, pred=constant_condition(True))
    dead, living = tf.exp(off), tf.sin(on)
    with tf.control_dependencies([tf.abs(dead)]):
        merged = tf.raw_ops.Merge(inputs=[dead, living])[0]
    with tf.control_dependencies([dead]):
        trigger = tf.raw_ops.ControlTrigger()
    with tf.control_dependencies([trigger]):
        return tf.tanh(merged)


def to_next_round():
    """A loop that goes on only on the dead side."""

    def wired(y):
        entered = tf.raw_ops.Enter(data=y, frame_name="frame")
        merge = tf.raw_ops.Merge(inputs=[entered, entered])[0]
        with tf.control_dependencies([merge]):
            condition = tf.constant(False)
        off, on = tf.raw_ops.Switch(data=merge, pred=condition)
        merge.op._update_input(1, tf.raw_ops.NextIteration(data=on + on))
        return tf.raw_ops.Exit(data=off)

    return wired(feed(3, 4))


TABLE = [
    holds("true", lambda: cond(constant_condition(True)), gone=("Switch", "Merge", "Tanh")),
    holds("false", lambda: cond(constant_condition(False)), gone=("Switch", "Merge", "Relu")),
    holds("which side it was", lambda: cond(constant_condition(True), index=True), gone=("Switch", "Merge")),
    holds("the other side it was", lambda: cond(constant_condition(False), index=True), gone=("Switch", "Merge")),
    holds("a dead side with nothing on it", lambda: straight(True), gone=("Switch", "Merge")),
    holds("a live side with nothing on it", lambda: straight(False), gone=("Switch", "Merge", "Exp")),
    holds("one in the other", nested, fires=2, gone=("Switch", "Merge", "Exp", "Relu")),
    holds("one that is dead with the other", buried, gone=("Switch", "Merge", "Tanh")),
    holds("a merge of three", three),
    holds("which of three it was", lambda: three(index=True)),
    holds("a frame that is left at once", frame, gone=("Switch", "Merge", "Enter")),
    holds("a dead loop", lambda: with_loop(False), fires=3, gone=("LoopCond", "Enter", "NextIteration")),
    holds("a loop that lives", lambda: with_loop(True), fires=3, gone="Sin"),
    holds("true in a loop", lambda: in_loop(True), gone="Exp"),
    holds("false in a loop", lambda: in_loop(False), gone="Tanh"),
    holds("a merge that waits for the dead", after_dead, gone="Exp"),
    refuses("an unknown condition", lambda: cond(tf.reduce_sum(feed(3, name="p")) > 0), because="not a constant"),
    refuses("the way to the next round", to_next_round, because="a remaining loop reads the dead side"),
]
