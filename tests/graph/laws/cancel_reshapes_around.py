"""Rows for `cancel_reshapes_around`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def dense(x):
    """A matrix, as product with a matrix."""
    return raw.MatMul(a=x, b=weights(4, 4))


def matrix(name="x"):
    """The product of a matrix of six rows with a kernel."""
    return dense(feed(6, 4, name=name))


def sequences(x):
    """Two sequences of three rows."""
    return raw.Reshape(tensor=x, shape=[-1, 3, 4])


def rows(x):
    """The rows of sequences as a matrix."""
    return raw.Reshape(tensor=x, shape=[-1, x.shape[-1]])


def norm(x):
    """A normalization of each row."""
    centered = x - raw.Mean(input=x, axis=[2], keep_dims=True)
    return (
        centered
        * raw.Rsqrt(x=raw.Mean(input=raw.Square(x=centered), axis=-1, keep_dims=True) + 1e-3)
        * weights(1, 1, 4)
    )


def block(x):
    """Two dense layers on sequences, with a residual sum and an activation."""
    y = sequences(dense(rows(x)))
    z = norm(x + y)
    return z + sequences(dense(rows(raw.Relu(features=z))))


def open_block():
    """A block between two products, of an open number of sequences."""
    return dense(rows(block(sequences(dense(rows(feed(None, 3, 4)))))))


def read_twice():
    """Sequences that something else reads."""
    x = sequences(matrix())
    return joined(sequences(dense(rows(raw.Tanh(x=x)))), x)


def joined(*parts):
    """Sequences one after the other."""
    return raw.ConcatV2(values=parts, axis=0)


def fed(name="z"):
    """Sequences that are fed."""
    return feed(2, 3, 4, name=name)


def mean_of_sequences():
    """A mean over each sequence of an activation."""
    return dense(raw.Mean(input=raw.Relu(features=sequences(matrix())), axis=[1]))


def halves():
    """An activation of the halves of rows."""
    part = raw.Reshape(tensor=matrix(), shape=[-1, 6, 2])
    return dense(raw.Reshape(tensor=raw.Relu(features=part), shape=[-1, 4]))


TABLE = [
    holds("one operation", lambda: dense(rows(raw.Relu(features=sequences(matrix())))), gone="Reshape"),
    holds(
        "a constant along the last axis", lambda: dense(rows(sequences(matrix()) * weights(1, 1, 4))), gone="Reshape"
    ),
    holds("a number", lambda: dense(rows(2.0 - sequences(matrix()))), gone="Reshape"),
    holds("a bias", lambda: dense(rows(raw.BiasAdd(value=sequences(matrix()), bias=weights(4)))), gone="Reshape"),
    holds("a softmax", lambda: dense(rows(raw.Softmax(logits=sequences(matrix())))), gone="Reshape"),
    holds("a sum", lambda: dense(rows(sequences(matrix()) + sequences(matrix("z")))), gone="Reshape"),
    holds("a normalization", lambda: dense(rows(norm(sequences(matrix())))), gone="Reshape"),
    holds("an activation at the end", lambda: raw.Relu(features=sequences(matrix())) * weights(3, 1)),
    holds("an activation at the start", lambda: dense(rows(raw.Relu(features=raw.Relu(features=feed(2, 3, 4)))))),
    holds("a block", open_block),
    holds("next to another reader", read_twice),
    refuses("a constant for each place", lambda: dense(rows(sequences(matrix()) * weights(3, 1))), because=""),
    refuses("a residual sum alone", lambda: joined(sequences(matrix()) + fed(), fed("w")), because="would cancel"),
    refuses("a sum that broadcasts", lambda: dense(rows(sequences(matrix()) + feed(1, 3, 4, name="z"))), because=""),
    refuses("halves of rows", halves, because=""),
    holds("a mean over each sequence, reshaped after the activation", mean_of_sequences),
]
