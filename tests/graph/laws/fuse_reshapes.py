"""Rows for `fuse_reshapes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def computed():
    """A shape that is only known when the graph runs."""
    x = feed(None, 6)
    return tf.reshape(tf.reshape(x, [-1, 2, 3]), tf.stack([tf.shape(x)[0], 6, 1]))


TABLE = [
    holds("two in a row", lambda: tf.reshape(tf.reshape(feed(None, 6), [-1, 2, 3]), [-1, 3, 2])),
    holds("there and back", lambda: tf.reshape(tf.reshape(feed(None, 6), [-1, 2, 3]), [-1, 6]), gone="Reshape"),
    holds("a computed shape", computed),
    holds("after a Squeeze", lambda: tf.reshape(tf.squeeze(feed(None, 1, 6), [1]), [-1, 2, 3]), gone="Squeeze"),
    holds("after an axis more", lambda: tf.reshape(tf.expand_dims(feed(None, 6), 1), [-1, 2, 3]), gone="ExpandDims"),
    holds("a Squeeze undone", lambda: tf.reshape(tf.squeeze(feed(None, 1, 6), [1]), [-1, 1, 6]), gone="Reshape"),
    holds("the same shape", lambda: tf.reshape(feed(2, 6), [2, 6]), gone="Reshape"),
    holds("the same shape with one size open", lambda: tf.reshape(feed(None, 6), [-1, 6]), gone="Reshape"),
    refuses("another shape", lambda: tf.reshape(feed(None, 6), [-1, 3]), because="may change the shape"),
    refuses(
        "nothing in it, so that the number of elements settles nothing",
        lambda: tf.reshape(feed(None, 0), tf.stack([tf.abs(feed(dtype="int32", name="s")) + 5, 0])),
        because="may change the shape",
    ),
    refuses(
        "two sizes open",
        lambda: tf.reshape(feed(None, None), feed(2, dtype="int32", name="s") * 0 + [4, 1]),
        because="may change the shape",
    ),
]
