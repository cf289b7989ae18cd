"""Rows for `drop_whole_slices`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def cube():
    """Slice with one open size."""
    return feed(None, 5, 4)


def open_begin(mask):
    """Slice with a begin mask, which makes begins without effect."""
    whole = {"end": [0, 0, 0], "strides": [1, 1, 1], "end_mask": 7}
    return tf.raw_ops.StridedSlice(input=cube(), begin=[0, 3, 0], begin_mask=mask, **whole)


TABLE = [
    holds("everything of each axis", lambda: cube()[:, :, :], gone="StridedSlice"),
    holds("up to the size", lambda: cube()[:, 0:5, :4], gone="StridedSlice"),
    holds("beyond the size", lambda: cube()[:, :99], gone="StridedSlice"),
    holds("an ellipsis", lambda: cube()[..., :4], gone="StridedSlice"),
    holds("an ellipsis in the middle", lambda: feed(None, 3, 7, 5)[:, ..., :5], gone="StridedSlice"),
    holds("only the first axes", lambda: cube()[:], gone="StridedSlice"),
    holds("a begin that counts for nothing", lambda: open_begin(7), gone="StridedSlice"),
    refuses("a begin that counts", lambda: open_begin(5), because="leave out elements"),
    holds("nothing known", lambda: feed(None, None)[:, :], gone="StridedSlice"),
    holds("Slice", lambda: tf.slice(cube(), [0, 0, 0], [-1, 5, 4]), gone="Slice"),
    refuses("one row less", lambda: cube()[:, :4], because="leave out elements"),
    refuses("from the second on", lambda: cube()[:, 1:], because="leave out elements"),
    refuses("the last counted from behind", lambda: cube()[:, :-1], because="leave out elements"),
    refuses("every second", lambda: cube()[:, ::2], because="leave out elements"),
    refuses("the other way round", lambda: cube()[:, ::-1], because="leave out elements"),
    refuses("behind an ellipsis, of another size", lambda: feed(3, 4, 5)[..., :4], because="leave out elements"),
    refuses("before an ellipsis", lambda: feed(4, 4, 3)[:3, ...], because="leave out elements"),
    refuses("an axis more", lambda: cube()[:, tf.newaxis], because="adds or removes axes"),
    refuses("an axis less", lambda: cube()[:, 0], because="adds or removes axes"),
    refuses("an open size", lambda: cube()[:2], because="leave out elements"),
    refuses("Slice of less", lambda: tf.slice(cube(), [0, 0, 0], [-1, 4, 4]), because="leave out elements"),
    refuses("Slice from the second on", lambda: tf.slice(cube(), [0, 1, 0], [-1, -1, 4]), because="leave out elements"),
    refuses("Slice of an open size", lambda: tf.slice(cube(), [0, 0, 0], [2, 5, 4]), because="leave out elements"),
]
