"""Rows for `strip_unused`."""

import tensorflow as tf

from tests.graph.table import feed, holds


def unread_nodes():
    """Return two nodes that no node reads, and their constant."""
    x = feed(None, 3)
    tf.nn.sigmoid(x + tf.constant(1.0))
    return tf.nn.relu(x)


def fed_only():
    """An input that nothing is computed from is still an input."""
    feed(2, name="unread")
    return tf.nn.relu(feed(2))


TABLE = [holds("an unread branch", unread_nodes, fires=3, gone="Sigmoid"), holds("nothing unused", fed_only, fires=0)]
