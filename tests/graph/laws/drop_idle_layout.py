"""Rows for `drop_idle_layout`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses

NOTHING = [[0, 0], [0, 0]]


def split(count):
    """The first of some parts."""
    return tf.raw_ops.Split(axis=1, value=feed(3, 4), num_split=count)[0]


TABLE = [
    holds("Pad", lambda: tf.raw_ops.Pad(input=feed(None, 4), paddings=NOTHING), gone="Pad"),
    holds("PadV2", lambda: tf.pad(feed(None, 4), NOTHING, constant_values=1.0), gone="PadV2"),
    holds("MirrorPad", lambda: tf.pad(feed(None, 4), NOTHING, "REFLECT"), gone="MirrorPad"),
    holds("Tile", lambda: tf.tile(feed(None, 4), [1, 1]), gone="Tile"),
    holds("Squeeze", lambda: tf.squeeze(feed(3, 4)), gone="Squeeze"),
    holds("BroadcastTo", lambda: tf.broadcast_to(feed(3, 4), [3, 4]), gone="BroadcastTo"),
    holds("AddN", lambda: tf.raw_ops.AddN(inputs=[feed(None, 4)]), gone="AddN"),
    holds("Split", lambda: split(1), gone="Split"),
    refuses("zeros", lambda: tf.pad(feed(None, 4), [[0, 0], [0, 1]]), because="larger"),
    refuses("reflections", lambda: tf.pad(feed(None, 4), [[0, 0], [1, 0]], "REFLECT"), because="larger"),
    refuses("repeated", lambda: tf.tile(feed(None, 4), [1, 2]), because="larger"),
    refuses("not repeated at all", lambda: tf.tile(feed(None, 4), [1, 0]), because="larger"),
    refuses("an axis less", lambda: tf.squeeze(feed(3, 1)), because="removes axes"),
    refuses("axes that may be 1", lambda: tf.squeeze(feed(None, 3)), because="removes axes"),
    refuses("a larger shape", lambda: tf.broadcast_to(feed(1, 4), [3, 4]), because="larger"),
    refuses(
        "a shape that may be larger",
        lambda: tf.broadcast_to(feed(None, 4), feed(2, dtype="int32", name="s") * 0 + [2, 4]),
        because="larger",
    ),
    refuses("two parts", lambda: split(2), because="splits"),
]
