"""Rows for `cancel_parts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses

raw = tf.raw_ops


def rows(*shape):
    """Rows of an open number."""
    return feed(*(shape or (None, 6)))


def split(sizes=3, axis=1, joined=1, order=(0, 1, 2)):
    """Parts of a matrix, joined again."""
    parts = tf.split(rows(), sizes, axis=axis)
    return tf.concat([parts[index] for index in order], joined)


def slices(*bounds):
    """Slices of columns, joined."""
    x = rows()
    return tf.concat([x[:, begin:end] for begin, end in bounds], 1)


def stack(axis=1, joined=1):
    """Parts without the axis, stacked again."""
    return tf.stack(tf.unstack(feed(3, 3, 3), axis=axis), axis=joined)


def of_two():
    """Parts of two tensors."""
    one, other = tf.split(rows(), 2, 1)[0], tf.split(feed(None, 6, name="z"), 2, 1)[1]
    return tf.concat([one, other], 1)


def read_twice():
    """Parts that something else reads too."""
    parts = tf.split(rows(), 2, 1)
    return tf.concat(parts, 1) + tf.tile(parts[0], [1, 2])


TABLE = [
    holds("of Split", split, gone="ConcatV2"),
    holds("of SplitV, of different sizes", lambda: split([1, 2, 3]), gone="ConcatV2"),
    holds("of Unpack", stack, gone="Pack"),
    holds("of Unpack, counted from behind", lambda: stack(joined=-2), gone="Pack"),
    holds("of slices", lambda: slices((0, 3), (3, 6)), gone="ConcatV2"),
    holds("of indices", lambda: (x := feed(2, 3)) is not None and tf.stack([x[0], x[1]]), gone="Pack"),
    holds("other readers of the parts", read_twice, gone="ConcatV2"),
    refuses("another order", lambda: split(order=(1, 0, 2)), because="in order"),
    refuses("some", lambda: split(order=(0, 1)), because="in order"),
    refuses("one twice", lambda: split(order=(0, 1, 2, 2)), because="in order"),
    refuses("another axis", lambda: split(joined=0), because="another axis"),
    refuses("stacked along another axis", lambda: stack(joined=0), because="another axis"),
    refuses("slices with a gap", lambda: slices((0, 2), (4, 6)), because="in order"),
    refuses("slices of different sizes", lambda: slices((0, 2), (2, 5)), because="different sizes"),
    refuses("parts of two tensors", of_two, because=""),
]
