"""Rows for `drop_idle_reductions`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown

NONE = [0] * 0


def over(reduce, x, axes, **kwargs):
    """Reduce along constant axes."""
    return reduce(x, tf.constant(axes, tf.int32), **kwargs)


TABLE = [
    holds("an axis of size 1", lambda: over(tf.reduce_mean, feed(None, 1), [1]), gone="Mean"),
    holds("an axis of size 1 that stays", lambda: over(tf.reduce_max, feed(None, 1), [-1], keepdims=True), gone="Max"),
    holds("no axis", lambda: over(tf.reduce_sum, unknown(feed(None, 4)), NONE), gone="Sum"),
    holds("bools", lambda: over(tf.reduce_all, feed(3, 1, dtype="bool"), [1]), gone="All"),
    holds("two axes", lambda: over(tf.reduce_prod, feed(1, 3, 1), [0, 2]), gone="Prod"),
    holds("a reversed axis of size 1", lambda: tf.reverse(feed(None, 1), [-1]), gone="ReverseV2"),
    holds("a reverse of nothing", lambda: tf.reverse(feed(3, 2), tf.constant(NONE, tf.int32)), gone="ReverseV2"),
    holds("a transpose of ones", lambda: tf.transpose(feed(None, 1, 1, 4), [0, 2, 1, 3]), gone="Transpose"),
    holds("a shuffle of a number", lambda: tf.random.shuffle(feed()), gone="RandomShuffle"),
    holds("a shuffle of one row", lambda: tf.random.shuffle(feed(1, 4)), gone="RandomShuffle"),
    holds("a list of one", lambda: tf.stack([feed(None, 4)], axis=-1), gone="Pack"),
    refuses("larger axes", lambda: over(tf.reduce_sum, feed(3, 2), [1]), because="larger than 1"),
    refuses("an open size", lambda: tf.reverse(feed(None, 2), [0]), because="larger than 1"),
    refuses("nothing known", lambda: over(tf.reduce_sum, unknown(feed(3, 1)), [1]), because="not known"),
    refuses("two rows", lambda: tf.random.shuffle(feed(2, 1)) * 0, because="several rows"),
    holds("a one that moves", lambda: tf.transpose(feed(None, 1, 4), [1, 0, 2]), gone="Transpose"),
    holds("a one that moves to the end", lambda: tf.transpose(feed(1, 3, 4), [1, 2, 0]), gone="Transpose"),
    refuses("an axis that moves", lambda: tf.transpose(feed(3, 2, 4), [1, 0, 2]), because="moves an axis"),
    refuses("two open sizes", lambda: tf.transpose(feed(None, 1, None), [1, 0, 2]), because="several sizes"),
]
