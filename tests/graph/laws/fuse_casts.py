"""Rows for `fuse_casts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def pair(inner, outer, last):
    """Two casts, as raw operations."""
    first = tf.raw_ops.Cast(x=feed(4, dtype=inner), DstT=tf.as_dtype(outer))
    return tf.identity(tf.raw_ops.Cast(x=first, DstT=tf.as_dtype(last)), name="last")


TABLE = [
    holds("bytes to floats", lambda: pair("uint8", "int32", "float32")),
    holds("bools to floats", lambda: pair("bool", "int32", "float32")),
    holds("integers to a narrower type", lambda: pair("int16", "int32", "uint8")),
    holds("integers through floats", lambda: pair("int8", "float32", "int32")),
    holds("integers, rounded once", lambda: pair("int32", "int64", "float32")),
    refuses("back", lambda: pair("int8", "int32", "int8"), because="the first dtype is the last one"),
    refuses("through a narrower type", lambda: pair("int32", "int8", "float32"), because="does not hold every int32"),
    refuses("through a float", lambda: pair("int32", "float32", "float64"), because="does not hold every int32"),
    refuses("through bools", lambda: pair("int32", "bool", "float32"), because="no integers"),
    refuses("floats", lambda: pair("float16", "float32", "int32"), because="no integers"),
]
