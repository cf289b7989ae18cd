"""Rows for `fold_switches`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def cond(condition, *, x=None, index=False):
    """What tf.cond was in version 1: a switch for each tensor, a merge, and constants that wait for their side."""
    x = feed(3, 4) if x is None else x
    off, on = tf.raw_ops.Switch(data=x, pred=condition)
    with tf.control_dependencies([tf.identity(on, name="pivot")]):
        scale = tf.constant([1.0, -2.0, 0.5, 3.0])
    taken, other = tf.nn.relu(on) * scale, tf.tanh(off) + 1.0
    merged = tf.raw_ops.Merge(inputs=[other, taken])
    return tf.cast(merged[1], tf.float32) * merged[0] if index else merged[0]


def known(value):
    """A condition."""
    return tf.constant(value)


def straight(value):
    """The dead side is the switch itself: nothing is between it and the merge."""
    x = feed(3, 4)
    off, on = tf.raw_ops.Switch(data=x, pred=known(value))
    return tf.raw_ops.Merge(inputs=[off, tf.exp(on)])[0]


def nested():
    """A condition on the live side of another."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=known(True))
    return tf.raw_ops.Merge(inputs=[tf.exp(off), cond(known(False), x=on)])[0]


def buried():
    """A condition on the dead side of another."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=known(True))
    return tf.raw_ops.Merge(inputs=[cond(tf.reduce_sum(off) > 0, x=off), tf.sin(on)])[0]


def three():
    """A merge of three."""
    x = feed(3, 4)
    off, on = tf.raw_ops.Switch(data=x, pred=known(True))
    first, second = tf.raw_ops.Switch(data=on, pred=tf.reduce_sum(x) > 0)
    return tf.raw_ops.Merge(inputs=[off, tf.exp(first), tf.sin(second)])[0]


def frame():
    """The dead side enters a loop, and leaves it at once."""
    off, on = tf.raw_ops.Switch(data=feed(3, 4), pred=known(True))
    left = tf.raw_ops.Exit(data=tf.raw_ops.Enter(data=tf.exp(off), frame_name="frame"))
    return tf.raw_ops.Merge(inputs=[left, tf.sin(on)])[0]


TABLE = [
    holds("true", lambda: cond(known(True)), gone=("Switch", "Merge", "Tanh")),
    holds("false", lambda: cond(known(False)), gone=("Switch", "Merge", "Relu")),
    holds("which side it was", lambda: cond(known(True), index=True), gone=("Switch", "Merge")),
    holds("the other side it was", lambda: cond(known(False), index=True), gone=("Switch", "Merge")),
    holds("a dead side with nothing on it", lambda: straight(True), gone=("Switch", "Merge")),
    holds("a live side with nothing on it", lambda: straight(False), gone=("Switch", "Merge", "Exp")),
    holds("one in the other", nested, fires=2, gone=("Switch", "Merge", "Exp", "Relu")),
    holds("one that is dead with the other", buried, gone=("Switch", "Merge", "Tanh")),
    refuses("an unknown condition", lambda: cond(tf.reduce_sum(feed(3, name="p")) > 0), because="not a constant"),
    refuses("a loop", frame, because="Enter of a loop"),
    refuses("a merge of three", three, because="more than two inputs"),
]
