"""Rows for `fold_absorbing_elements`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def whole(*shape):
    """An input of integers."""
    return feed(*shape, dtype="int32")


TABLE = [
    holds("integers", lambda: whole(2, 3) * 0, gone="Mul"),
    holds("the constant first", lambda: tf.zeros([3], tf.int32) * whole(2, 3), gone="Mul"),
    holds("a larger shape", lambda: whole(1, 3) * np.zeros([2, 1], "int32"), gone="Mul"),
    holds("more axes", lambda: whole(3) * np.zeros([2, 1, 1], "int32"), gone="Mul"),
    holds("and false", lambda: tf.logical_and(feed(3, dtype="bool"), False), gone="LogicalAnd"),
    holds("or true", lambda: tf.logical_or(True, feed(3, dtype="bool")), gone="LogicalOr"),
    holds("floats that were small integers", lambda: tf.cast(feed(3, dtype="int8"), "float32") * 0.0, gone="Mul"),
    refuses("a divisor", lambda: 1.0 / (tf.cast(feed(3, dtype="int8"), "float32") * 0.0), because="the sign matters"),
    refuses("floats", lambda: feed(3) * 0.0, because="NaN if x is NaN or infinite"),
    refuses("half of large integers", lambda: tf.cast(whole(3), "float16") * tf.constant(0, "float16"), because="NaN"),
    refuses("another number", lambda: whole(3) * 2, because="does not absorb"),
    refuses("and true", lambda: tf.logical_and(feed(3, dtype="bool"), True), because="does not absorb"),
    refuses("or false", lambda: tf.logical_or(feed(3, dtype="bool"), False), because="does not absorb"),
    refuses("some zeros", lambda: whole(3) * [0, 1, 0], because="does not absorb"),
    refuses("an open size", lambda: whole(None, 3) * 0, because="not known"),
    refuses("a large result", lambda: whole(2000, 1) * np.zeros([2000], "int32"), because="16,000,000 bytes"),
]
