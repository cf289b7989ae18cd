"""Rows for `drop_numeric_checks`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def waiting():
    """A check that waits for an assertion."""
    x = feed(3)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[1])]):
        return tf.nn.relu(tf.debugging.check_numerics(x, "no"))


TABLE = [
    holds("a check", lambda: tf.nn.relu(tf.debugging.check_numerics(feed(3), "no")), gone="CheckNumerics"),
    holds(
        "the newer one",
        lambda: tf.nn.relu(tf.raw_ops.CheckNumericsV2(tensor=feed(3), message="no")),
        gone="CheckNumericsV2",
    ),
    refuses("one that waits", waiting, because="control edge"),
]
