"""Rows for `cancel_shape_lists`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses

raw = tf.raw_ops


def shapes(out_type=tf.int32):
    """The sum of two shapes."""
    one, other = raw.ShapeN(input=[feed(None, 4), feed(None, 4, name="z")], out_type=out_type)
    return one + 2 * other


def waited_for():
    """Shapes that another node waits for."""
    (one,) = raw.ShapeN(input=[feed(None, 4)])
    with tf.control_dependencies([one]):
        return tf.identity(feed(3, name="z"))


TABLE = [
    holds("two shapes", shapes, gone="ShapeN"),
    holds("in 64 bits", lambda: shapes(tf.int64), gone="ShapeN"),
    refuses("a node that waits", waited_for, because="control edge"),
]
