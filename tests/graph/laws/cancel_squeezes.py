"""Rows for `cancel_squeezes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown

TABLE = [
    holds("taken away and added", lambda: tf.expand_dims(tf.squeeze(feed(None, 1, None), [1]), 1), gone="Squeeze"),
    holds("added and taken away", lambda: tf.squeeze(tf.expand_dims(feed(None, None), 1), [1]), gone="ExpandDims"),
    holds("from behind", lambda: tf.squeeze(tf.expand_dims(feed(None, None), -2), [-2]), gone="ExpandDims"),
    holds("from either end", lambda: tf.squeeze(tf.expand_dims(feed(None, 3), -1), [2]), gone="ExpandDims"),
    holds("from either end, the other way", lambda: tf.expand_dims(tf.squeeze(feed(None, 1, 3), [-2]), 1)),
    holds(
        "nothing known, not even how many axes",
        lambda: tf.squeeze(tf.expand_dims(unknown(feed(3)), 0), [0]),
        gone="ExpandDims",
    ),
    refuses("another axis", lambda: tf.expand_dims(tf.squeeze(feed(None, 1, 3), [1]), 2), because="axes [1]"),
    refuses("one of two", lambda: tf.expand_dims(tf.squeeze(feed(None, 1, 1), [1, 2]), 1), because="axes [1, 2]"),
    refuses("all there are", lambda: tf.squeeze(tf.expand_dims(feed(1, 3), 1)), because="axes []"),
    refuses("another axis of 1", lambda: tf.squeeze(tf.expand_dims(feed(1, 3), 1), [0]), because="axes [0]"),
]
