"""Rows for `cancel_concats`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown


def joined(axis=1, other=3):
    """Two inputs, one after the other."""
    shape = (2, other) if axis else (other, 4)
    return tf.concat([feed(2, 4), feed(*shape, name="z")], axis)


def open_rows():
    """Rows of a batch of any size, joined along the columns."""
    return tf.concat([feed(None, 4), feed(None, 3, name="z")], 1)


def open_size():
    """A first element of unknown width."""
    return tf.concat([feed(2, None), feed(2, 3, name="z")], 1)


def fed_bound():
    """A slice whose begin is an input."""
    return tf.slice(joined(), feed(2, dtype="int32", name="i"), [2, 2])


TABLE = [
    holds("the second element", lambda: tf.identity(joined()[:, 4:]), gone="ConcatV2"),
    holds("a part of the first", lambda: joined()[:, 1:3], gone="ConcatV2"),
    holds("of the second, from the end", lambda: joined()[:, -2:-1], gone="ConcatV2"),
    holds("one column", lambda: joined()[:, 5], gone="ConcatV2"),
    holds("the last column", lambda: joined()[:, -1], gone="ConcatV2"),
    holds("rows too", lambda: joined()[1:, 4:6], gone="ConcatV2"),
    holds("of rows", lambda: joined(0)[2:4], gone="ConcatV2"),
    holds("a batch of any size", lambda: open_rows()[:, 4:6], gone="ConcatV2"),
    holds("beyond the end", lambda: joined()[:, 4:99], gone="ConcatV2"),
    holds("Slice", lambda: tf.slice(joined(), [0, 4], [2, 2]), gone="ConcatV2"),
    holds("Slice to the end", lambda: tf.slice(joined(), [0, 4], [-1, -1]), gone="ConcatV2"),
    refuses("of both elements", lambda: joined()[:, 3:5], because="several elements"),
    refuses("every second", lambda: joined()[:, ::2], because="left out"),
    refuses("along another axis", lambda: joined()[1:], because="all of the axis"),
    refuses("a new axis", lambda: joined()[:, tf.newaxis, 4:], because="new axis"),
    refuses("an element of any size", lambda: open_size()[:, 4:6], because="not known"),
    refuses("from the end of any size", lambda: open_size()[:, -2:], because="not known"),
    refuses("an unknown rank", lambda: tf.concat([unknown(feed(2, 4))] * 2, 1)[:, 4:], because="rank"),
]
