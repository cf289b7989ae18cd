"""Rows for `fold_selects`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def select(condition, *shapes):
    """Select from two inputs."""
    one, other = (feed(*shape, name=name) for shape, name in zip(shapes, "ab", strict=True))
    return tf.where(tf.constant(condition), one, other)


def version_1(condition, *shape):
    """Select of equal shapes."""
    return tf.raw_ops.Select(condition=tf.constant(condition), x=feed(*shape), y=feed(*shape, name="z"))


def equal_sides():
    """Select between a tensor and itself."""
    x = feed(None, 4)
    return tf.where(tf.constant(True), x, x)


TABLE = [
    holds("always the first", lambda: select([True, True], (3, 2), (3, 2)), gone="SelectV2"),
    holds("never the first", lambda: select(False, (3, 2), (3, 2)), gone="SelectV2"),
    holds("a side that is smaller", lambda: select(True, (2,), (3, 2)), gone="SelectV2"),
    holds("a condition that is larger", lambda: select([[True, True]] * 3, (2,), (2,)), gone="SelectV2"),
    holds("equal sides of an open size", equal_sides, gone="SelectV2"),
    holds("version 1, of an open size", lambda: version_1(True, None, 2), gone="Select"),
    holds("version 1, by rows", lambda: version_1([False] * 3, 3, 2), gone="Select"),
    refuses("both", lambda: select([True, False], (3, 2), (3, 2)), because="varies"),
    refuses("open sizes, which may be broadcast", lambda: select(True, (None, 2), (None, 2)), because="not known"),
]
