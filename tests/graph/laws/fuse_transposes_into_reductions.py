"""Rows for `fuse_transposes_into_reductions`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def first():
    """Channels first."""
    return tf.transpose(feed(None, 4, 5, 6), [0, 3, 1, 2])


TABLE = [
    holds("a mean of places", lambda: tf.reduce_mean(first(), [2, 3]), gone="Transpose"),
    holds("a maximum of one axis", lambda: tf.reduce_max(first(), 1), gone="Transpose"),
    holds("a negative axis and a positive one", lambda: tf.reduce_sum(first(), [-1, 1]), gone="Transpose"),
    holds("all axes", lambda: tf.reduce_min(first(), [0, 1, 2, 3]), gone="Transpose"),
    holds(
        "a test of transposed truth values",
        lambda: tf.reduce_all(tf.transpose(feed(None, 4, 5, 6) > 0.5, [0, 3, 1, 2]), [2, 3]),
        gone="Transpose",
    ),
    refuses("kept axes", lambda: tf.reduce_mean(first(), [2, 3], keepdims=True), because="stay in the result"),
    refuses("another order", lambda: tf.reduce_mean(first(), [3]), because="order"),
]
