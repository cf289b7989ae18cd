"""Rows for `fold_constants`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def two_outputs():
    """Both halves of a constant, each read."""
    one, other = tf.split(weights(6), 2)
    return feed(3) * one + other


TABLE = [
    holds("a chain", lambda: feed(4) * tf.math.rsqrt(weights(4, low=1) + 0.1), gone="Rsqrt"),
    holds("two results", lambda: feed(4) * tf.exp(weights(4)) + tf.sin(weights(4)), fires=2, gone=("Exp", "Sin")),
    holds("several outputs", two_outputs, fires=2),
    holds("the output itself", lambda: tf.exp(weights(4))),
    holds("nothing constant", lambda: feed(4) * weights(4), fires=0),
    refuses("too large", lambda: feed(1) * tf.fill([4000, 4000], 1.0), because="64,000,000 bytes"),
    refuses("random", lambda: feed(2) * 0.0 * tf.random.normal([2], seed=1), because="must run every time"),
]
