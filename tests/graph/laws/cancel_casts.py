"""Rows for `cancel_casts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def pair(inner, outer, last=None):
    """From a type to another one and back, as raw operations."""
    first = tf.raw_ops.Cast(x=feed(4, dtype=inner), DstT=tf.as_dtype(outer))
    return tf.raw_ops.Cast(x=first, DstT=tf.as_dtype(last or inner))


def levels():
    """Return quantized values cast to a wider dtype and back, made from integers because they cannot be fed."""
    return cast(cast(cast(cast(feed(4, dtype="int8"), tf.qint8), tf.qint32), tf.qint8), tf.int8)


def cast(x, kind):
    """A raw operation."""
    return tf.raw_ops.Cast(x=x, DstT=kind)


TABLE = [
    holds("half and single", lambda: pair("float16", "float32"), gone="Cast"),
    holds("bfloat16 and single", lambda: pair("bfloat16", "float32"), gone="Cast"),
    holds("small integers in a float", lambda: pair("int8", "float32"), gone="Cast"),
    holds("to the same type", lambda: tf.raw_ops.Cast(x=feed(4), DstT=tf.float32), gone="Cast"),
    refuses("what rounds", lambda: pair("float32", "float16"), because="does not hold every float32"),
    refuses("what rounds otherwise", lambda: pair("float16", "bfloat16"), because="does not hold every float16"),
    refuses("a longer fraction", lambda: pair("bfloat16", "float16"), because="does not hold every bfloat16"),
    refuses("the largest integers in a double", lambda: pair("int64", "float64"), because="does not hold every int64"),
    refuses("the same without a sign", lambda: pair("uint64", "float64"), because="does not hold every uint64"),
    holds("integers in longer ones", lambda: pair("uint32", "int64"), gone="Cast"),
    refuses("quantized dtypes, which numpy does not have", levels, because="does not hold every qint8"),
    refuses("large integers in a float", lambda: pair("int32", "float32"), because="does not hold every int32"),
    refuses("a third type", lambda: pair("int8", "int32", "int64"), because="makes int64 of int8"),
]
