"""Rows for `cancel_transposes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def twice(first, second):
    """One after the other."""
    return tf.transpose(tf.transpose(feed(None, 3, 4, 5), first), second)


TABLE = [
    holds("there and back", lambda: twice([0, 2, 3, 1], [0, 3, 1, 2]), gone="Transpose"),
    holds("two that are one", lambda: twice([0, 2, 3, 1], [0, 2, 3, 1])),
    holds("two that do not commute", lambda: twice([1, 2, 0, 3], [1, 0, 3, 2])),
    holds("there and back, counted from the end", lambda: twice([0, -2, -1, 1], [0, 3, -3, 2]), gone="Transpose"),
    holds("nothing, counted from the end", lambda: tf.transpose(feed(3, 4), [0, -1]), gone="Transpose"),
    holds("of no axes", lambda: tf.transpose(tf.transpose(feed(), []), []), fires=2, gone="Transpose"),
    holds("counted from the end", lambda: twice([0, -2, -1, 1], [0, 2, -1, 1])),
    holds("three in a row", lambda: tf.transpose(twice([1, 0, 2, 3], [0, 1, 3, 2]), [3, 2, 1, 0]), fires=2),
    holds("of rank 1", lambda: tf.transpose(feed(4), [0]), gone="Transpose"),
    refuses("one alone", lambda: tf.transpose(feed(3, 4), [1, 0]), because="permutes axes"),
]
