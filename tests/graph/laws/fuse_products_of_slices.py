"""Rows for `fuse_products_of_slices`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def loop(a=None, b=None, *, order=None, axis=0, stack=0, **kwargs):
    """Return stacked products in the usual form."""
    a = feed(3, 5, 4) if a is None else a
    b = weights(4, 2) if b is None else b
    order = range(a.shape[axis]) if order is None else order
    return tf.stack([tf.matmul(a[i] if axis == 0 else a[:, i], b, **kwargs) for i in order], axis=stack)


def unstacked(axis):
    """The same with tf.unstack."""
    b = weights(4, 2)
    return tf.stack([tf.matmul(part, b) for part in tf.unstack(feed(3, 5, 4), axis=axis)], axis=axis)


def used_twice():
    """A product that something else reads."""
    a, b = feed(2, 5, 4), weights(4, 2)
    first, second = (tf.matmul(a[i], b) for i in range(2))
    return tf.stack([first, second]) + first


def two_matrices():
    """A matrix for each slice."""
    a = feed(2, 5, 4)
    return tf.stack([tf.matmul(a[i], weights(4, 2)) for i in range(2)])


def part_of_each():
    """Slices that leave something out."""
    a, b = feed(2, 5, 4), weights(4, 2)
    return tf.stack([tf.matmul(a[i, 1:], b) for i in range(2)])


def waiting():
    """A product that waits."""
    a, b = feed(2, 5, 4), weights(4, 2)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[1])]):
        first = tf.matmul(a[0], b)
    return tf.stack([first, tf.matmul(a[1], b)])


TABLE = [
    holds("a loop over the first axis", loop, gone=("Pack", "MatMul")),
    holds("over time steps, of any batch", lambda: loop(feed(None, 3, 4), axis=1, stack=1), gone="MatMul"),
    holds("stacked along an axis from behind", lambda: loop(feed(None, 3, 4), axis=1, stack=-2), gone="MatMul"),
    holds("indices from behind", lambda: loop(order=[-3, -2, -1]), gone="MatMul"),
    holds("a transposed matrix", lambda: loop(b=weights(2, 4), transpose_b=True), gone="MatMul"),
    holds("a matrix that is computed", lambda: loop(b=feed(4, 2, name="b")), gone="MatMul"),
    holds("tf.unstack", lambda: unstacked(0), gone="MatMul"),
    holds("tf.unstack along the second axis", lambda: unstacked(1), gone="MatMul"),
    refuses("one slice left out", lambda: loop(order=[0, 1]), because="2 slices of 3"),
    refuses("slices of an unknown number", lambda: loop(feed(None, 5, 4), order=[0, 1]), because="unknown number"),
    refuses("another order", lambda: loop(order=[0, 2, 1]), because="in order"),
    refuses("stacked along another axis", lambda: loop(stack=1), because="stacked along axis 1"),
    refuses("transposed slices", lambda: loop(b=weights(5, 2), transpose_a=True), because="transposed"),
    refuses("a matrix each", two_matrices, because="different matrices"),
    refuses("parts of slices", part_of_each, because="not every factor"),
    refuses("a product that is read elsewhere", used_twice, because="consumers"),
    refuses("a product that waits", waiting, because="control edge"),
]
