"""Rows for `fold_constants`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def two_outputs():
    """Both halves of a constant, each read."""
    one, other = tf.split(weights(6), 2)
    return feed(3) * one + other


def never_taken():
    """Return one constant operation that fails, in a branch that is not selected, and one that does not."""
    x = feed(3)
    dead, alive = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) < 1e9)
    with tf.control_dependencies([tf.identity(dead)]):
        fails = tf.raw_ops.FloorDiv(x=tf.constant([1, 2, 3]), y=tf.constant([1, 0, 1]))
    return tf.raw_ops.Merge(inputs=[dead + tf.cast(fails, tf.float32), alive])[0] * tf.exp(weights(3))


TABLE = [
    holds("a chain", lambda: feed(4) * tf.math.rsqrt(weights(4, low=1) + 0.1), gone="Rsqrt"),
    holds("two results", lambda: feed(4) * tf.exp(weights(4)) + tf.sin(weights(4)), fires=2, gone=("Exp", "Sin")),
    holds("several outputs", two_outputs, fires=2),
    holds("the output itself", lambda: tf.exp(weights(4))),
    holds("what fails is left alone", never_taken, gone="Exp"),
    holds("nothing constant", lambda: feed(4) * weights(4), fires=0),
    refuses("too large", lambda: feed(1) * tf.fill([4000, 4000], 1.0), because="64,000,000 bytes"),
    refuses("random", lambda: feed(2) * 0.0 * tf.random.normal([2], seed=1), because="must run every time"),
]
