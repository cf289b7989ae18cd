"""Rows for `drop_control_edges`."""

import tensorflow as tf

from tests.graph.table import feed, holds


def after(first):
    """Something that waits."""
    with tf.control_dependencies([first]):
        return tf.nn.relu(feed(3))


TABLE = [
    holds("a constant", lambda: after(tf.constant(1.0))),
    holds("a group of pure nodes", lambda: after(tf.group(tf.constant(1.0), tf.nn.relu(tf.constant([2.0])))), fires=3),
    holds("an effect is waited for", lambda: after(tf.raw_ops.Assert(condition=True, data=[1])), fires=0),
    holds("so is what comes after it", lambda: after(tf.group(tf.raw_ops.Assert(condition=True, data=[1]))), fires=0),
]
