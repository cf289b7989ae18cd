"""Rows for `cancel_lists`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def two(*shape):
    """Two inputs."""
    return feed(*shape), feed(*shape, name="z")


def parts(sizes, *shape, axis=1):
    """The last part of a Split of a ConcatV2."""
    return tf.tanh(tf.split(tf.concat(two(*shape), 1), sizes, axis)[-1])


TABLE = [
    holds("an element", lambda: tf.stack(two(None, 4))[1], gone="StridedSlice"),
    holds("the last one", lambda: tf.stack(two(None, 4))[-1], gone="StridedSlice"),
    holds("along another axis", lambda: tf.stack(two(3, 4), 1)[:, 0], gone="StridedSlice"),
    holds("every element", lambda: tf.unstack(tf.stack(two(3, 4), 1), axis=1)[1] * 2.0, gone="Unpack"),
    holds("equal parts", lambda: parts(2, None, 4), gone="Split"),
    holds("parts with sizes", lambda: parts([4, 4], None, 4), gone="SplitV"),
    refuses("other parts", lambda: parts([3, 5], 3, 4), because="may differ"),
    refuses("parts along another axis", lambda: parts(2, 4, 4, axis=0), because="may differ"),
    refuses("an element of each", lambda: tf.stack(two(2, 4))[:, 0], because="one element"),
    refuses("a part of an element", lambda: tf.stack(two(2, 4))[0, 1:], because="leave out"),
    refuses("a range", lambda: tf.stack(two(2, 4))[0:1], because="one element"),
    refuses("another axis", lambda: tf.unstack(tf.stack(two(2, 4)), axis=1)[1], because="another axis"),
]
