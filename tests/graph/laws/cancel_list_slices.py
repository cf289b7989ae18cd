"""Rows for `cancel_list_slices`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def pack(axis=0):
    """Two vectors, stacked."""
    return tf.stack([feed(3), feed(3, name="z")], axis)


TABLE = [
    holds("Slice", lambda: tf.slice(pack(), [1, 0], [1, 3]), gone="Slice"),
    holds("StridedSlice", lambda: pack()[1:2], gone="StridedSlice"),
    holds("along the last axis", lambda: pack(1)[:, :1], gone="StridedSlice"),
    holds("Split", lambda: tf.concat(tf.split(pack(), 2)[::-1], 0), gone="Split"),
    holds("SplitV", lambda: tf.concat(tf.split(pack(-1), [1, 1], axis=1)[::-1], 1), gone="SplitV"),
    holds("GatherV2", lambda: tf.gather(pack(), 1), gone="GatherV2"),
    holds("GatherV2 along the last axis", lambda: tf.gather(pack(1), 0, axis=1), gone="GatherV2"),
    refuses("another axis", lambda: pack()[:, 1:2], because="another axis"),
    refuses(
        "several elements",
        lambda: tf.stack([feed(3), feed(3, name="z"), feed(3, name="a"), feed(3, name="b")])[:2],
        because="several elements",
    ),
    refuses("several indices", lambda: tf.gather(pack(), [1]), because="not known"),
    refuses("an index that is fed", lambda: tf.gather(pack(), feed(dtype="int32", name="i") * 0), because="not known"),
]
