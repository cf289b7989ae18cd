"""Rows for `push_exact_constants`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def twice(combine, first, second, dtype="float32"):
    """One after the other."""
    return combine(combine(feed(None, 4, dtype=dtype), first), second)


def bits(name):
    """A bitwise operation, twice."""
    return twice(getattr(tf.bitwise, f"bitwise_{name}"), 7, 10, "int32")


TABLE = [
    holds("a maximum", lambda: twice(tf.maximum, weights(4), weights(4))),
    holds("a minimum, the constants first", lambda: tf.minimum(weights(4), tf.minimum(weights(4), feed(None, 4)))),
    holds("bits in both", lambda: bits("and")),
    holds("bits in one", lambda: bits("or")),
    holds("bits in one only", lambda: bits("xor")),
    holds("bools", lambda: twice(tf.logical_and, [True, False, True, True], True, "bool")),
    holds("integers on both sides", lambda: tf.maximum(3, tf.maximum(feed(None, dtype="int32"), 2))),
    refuses("floats on both sides", lambda: tf.maximum(3.0, tf.maximum(feed(None), 2.0)), because="different sides"),
    refuses("a NaN", lambda: twice(tf.maximum, np.nan, 1.0), because="NaN"),
    refuses("zeros of both signs", lambda: twice(tf.maximum, -0.0, 0.0), because="differ in sign"),
    refuses("a larger constant", lambda: twice(tf.minimum, weights(4), weights(2, 1)), because="larger"),
]
