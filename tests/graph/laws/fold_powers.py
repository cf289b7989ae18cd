"""Rows for `fold_powers`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown


def power(exponent, x=None, dtype="float32"):
    x = feed(None, 4, dtype=dtype) if x is None else x
    return tf.raw_ops.Pow(x=x, y=tf.constant(exponent, x.dtype))


def deviation():
    x = feed(None, 4)
    return tf.reduce_mean(tf.square(x - tf.reduce_mean(x, -1, keepdims=True)), -1, keepdims=True) + 1e-3


TABLE = [
    holds("a square", lambda: power(2), gone="Pow"),
    holds("a third power", lambda: power(3), gone="Pow"),
    holds("a reciprocal", lambda: power(-1), gone="Pow"),
    holds("1, even of NaN", lambda: power(0), gone="Pow"),
    holds("the root of a square", lambda: power(0.5, tf.square(feed(None, 4))), gone="Pow"),
    holds("one by a standard deviation", lambda: power(-0.5, deviation()), gone="Pow"),
    holds("the root of a number with a limit", lambda: power(0.5, tf.maximum(feed(4), 1e-3)), gone="Pow"),
    holds("integers", lambda: power(3, dtype="int32"), gone="Pow"),
    holds("half precision", lambda: power(2, dtype="float16"), gone="Pow"),
    holds("an exponent for each channel", lambda: power(np.full(4, 2)), gone="Pow"),
    holds("an unknown shape", lambda: power(2, unknown(feed(None, 4))), gone="Pow"),
    refuses("the root of any number", lambda: power(0.5), because="negative"),
    refuses("one by the root of a Relu, which may be -0", lambda: power(-0.5, tf.nn.relu(feed(4))), because="negative"),
    refuses("the root of a square less a number", lambda: power(0.5, tf.square(feed(4)) + -1.0), because="negative"),
    refuses("several exponents", lambda: power([1, 2, 3, 2]), because="differ"),
    refuses("other exponents", lambda: power(1.5), because="no simpler form"),
    refuses("fractions of integers", lambda: power(-1, feed(4, dtype="int32") * 0 + 1), because="no simpler form"),
    refuses("complex numbers", lambda: power(2, dtype="complex64"), because="complex64"),
    refuses("a larger shape", lambda: power(np.full((3, 1), 2), feed(4)), because="larger"),
    refuses("no exponents", lambda: power(np.zeros(0), feed(1)), because="differ"),
]
