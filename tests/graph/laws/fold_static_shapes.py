"""Rows for `fold_static_shapes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown

raw = tf.raw_ops

TABLE = [
    holds("all sizes", lambda: raw.Shape(input=feed(3, 4)), gone="Shape"),
    holds("one size of several", lambda: raw.Shape(input=feed(None, 4))[1], gone=("Shape", "StridedSlice")),
    holds("the last one", lambda: raw.Shape(input=feed(None, 4), out_type="int64")[-1], gone="Shape"),
    holds("two sizes", lambda: raw.Shape(input=feed(None, 4, 5))[1:3], gone="Shape"),
    holds("of a scalar", lambda: raw.Shape(input=feed()), gone="Shape"),
    holds("in 64 bits", lambda: raw.Shape(input=feed(3, 4), out_type="int64"), gone="Shape"),
    holds("the number of elements", lambda: raw.Size(input=feed(3, 4)), gone="Size"),
    holds("the rank", lambda: raw.Rank(input=feed(None, 4)), gone="Rank"),
    refuses("an open size", lambda: raw.Shape(input=feed(None, 4))[0], because="not known"),
    refuses("open sizes", lambda: raw.Size(input=feed(None, 4)), because="not known"),
    refuses("an unknown rank", lambda: raw.Rank(input=unknown(feed(3, 4))), because="not known"),
    holds("from the second one on", lambda: raw.Shape(input=feed(None, 4, 5))[1:], gone="Shape"),
    holds("all but the last one", lambda: raw.Shape(input=feed(3, 4, None))[:-1], gone="Shape"),
    refuses("an open size from the start", lambda: raw.Shape(input=feed(None, 4))[:1], because="not known"),
    holds("under a new axis", lambda: raw.Shape(input=feed(3, 4))[tf.newaxis], gone="Shape"),
    refuses("a new axis", lambda: raw.Shape(input=feed(None, 4))[tf.newaxis], because="new axis"),
]
