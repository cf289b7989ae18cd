"""Rows for `fold_reshape_sizes`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def rows(x, dtype="int32"):
    """The matrix of all rows, as Keras writes it."""
    sizes = raw.Shape(input=x, out_type=dtype)
    lead = list(range(len(x.shape) - 1))
    count = raw.Prod(input=raw.GatherV2(params=sizes, indices=lead, axis=0), axis=[0])
    width = raw.Squeeze(input=raw.GatherV2(params=sizes, indices=[len(lead)], axis=0))
    return raw.Reshape(tensor=x, shape=raw.Pack(values=[count, width]))


def dense(x):
    """A dense layer on sequences as Keras writes it."""
    y = raw.MatMul(a=rows(x), b=weights(4, 5))
    lead = raw.GatherV2(params=raw.Shape(input=x), indices=[0, 1], axis=0)
    return raw.Reshape(tensor=raw.BiasAdd(value=y, bias=weights(5)), shape=raw.ConcatV2(values=[lead, [5]], axis=0))


def sequence(name="x"):
    """Sequences of an open number."""
    return feed(None, 3, 4, name=name)


def to(x, *sizes):
    """A Reshape to computed sizes."""
    return raw.Reshape(tensor=x, shape=raw.Pack(values=sizes))


def batch(x):
    """The size of the first axis."""
    sizes = raw.Shape(input=x)
    return raw.StridedSlice(input=sizes, begin=[0], end=[1], strides=[1], shrink_axis_mask=1)


def table_rows(places):
    """Rows of a table as a matrix."""
    return to(raw.GatherV2(params=weights(7, 4), indices=places, axis=0), raw.Mul(x=batch(places), y=3), 4)


def scores(x):
    """Attention scores of two heads, as a matrix."""
    heads = raw.Reshape(tensor=x, shape=[-1, 3, 2, 2])
    products = raw.Einsum(inputs=[heads, heads], equation="btnh,bsnh->bnts")
    return to(raw.Transpose(x=raw.Softmax(logits=products), perm=[0, 2, 1, 3]), batch(x), 18)


def second_part(x):
    """The second of two parts, as a matrix."""
    return to(raw.SplitV(value=x, size_splits=[1, 3], axis=2, num_split=2)[1], batch(x), 9)


def fed_shape():
    """A Reshape to sizes that are computed from values."""
    zeros = raw.Mul(x=raw.Cast(x=feed(2, name="s"), DstT="int32"), y=0)
    return raw.Reshape(tensor=feed(2, 2), shape=raw.AddV2(x=zeros, y=[1, 4]))


TABLE = [
    holds("the rows of sequences", lambda: rows(sequence())),
    holds("in 64 bits", lambda: rows(sequence(), "int64")),
    holds("of four axes", lambda: rows(feed(None, 2, 3, 4))),
    holds("a dense layer", lambda: dense(sequence()), fires=2),
    holds("of a Transpose", lambda: to(raw.Transpose(x=(x := sequence()), perm=[0, 2, 1]), batch(x), 12)),
    holds("of a sum", lambda: to((x := sequence()) + weights(3, 1), batch(x), 12)),
    holds("of a mean", lambda: to(tf.reduce_mean(x := sequence(), 2, keepdims=True), batch(x), 3)),
    holds("of rows of a table", lambda: table_rows(tf.cast(feed(None, 3) > 0, tf.int32))),
    holds("of attention scores", lambda: scores(sequence())),
    holds("of a part", lambda: second_part(sequence())),
    holds("with a new axis", lambda: to(raw.ExpandDims(input=(x := sequence()), axis=1), batch(x), 12)),
    refuses("two open sizes", lambda: to(x := feed(None, 3, None), batch(x), 3, tf.shape(x)[2]), because="several"),
    refuses("one that is left open", lambda: to(x := sequence(), batch(x), -1), because="several"),
    refuses("that of another tensor", lambda: to(sequence(), batch(sequence("z")), 12), because="all elements"),
    refuses("a sum of two inputs", lambda: to((x := sequence()) + sequence("z"), batch(x), 12), because="all elements"),
    refuses("a shape that is fed", fed_shape, because="not computed"),
    refuses("a size of 0", lambda: to(x := feed(None, 0), batch(x), 0), because="is 0"),
]
