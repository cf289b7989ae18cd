"""Rows for `fuse_products_of_parts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def loop(product, *shape, axis=0, stack=0):
    """Stack a function of each part."""
    return tf.stack([product(part) for part in tf.unstack(feed(*(shape or (3, 5, 4))), axis=axis)], axis=stack)


def biased(part):
    """A product with its own matrix and bias."""
    return tf.nn.bias_add(tf.matmul(part, weights(4, 2)), weights(2))


def split_loop(product, *shape, axis=1, joined=1, sizes=3):
    """Join a function of each part of a matrix."""
    return tf.concat([product(part) for part in tf.split(feed(*(shape or (6, 12))), sizes, axis=axis)], axis=joined)


def gated(part):
    """A product from the left, with its own matrix."""
    return tf.matmul(weights(5, 6), part)


def uneven():
    """Parts of different widths."""
    one, other = tf.split(feed(6, 12), [5, 7], axis=1)
    return tf.concat([tf.matmul(one, weights(5, 2)), tf.matmul(other, weights(7, 2))], 1)


def any_width():
    """A part of unknown width."""
    one, other = tf.split(feed(None, None), 2, axis=1)
    return tf.concat([tf.matmul(one, weights(1, 2)), tf.matmul(other, weights(1, 2))], 1)


def split_and_stacked():
    """Parts of a matrix, stacked."""
    return tf.stack([biased(part) for part in tf.split(feed(None, 12), 3, axis=1)], axis=1)


def unstacked_and_joined():
    """Parts of a tensor, joined."""
    return tf.concat([biased(part) for part in tf.unstack(feed(None, 3, 4), axis=1)], axis=1)


def both():
    """Products of the parts of two tensors."""
    one, other = tf.unstack(feed(3, 5, 4)), tf.unstack(feed(3, 4, 2, name="z"))
    return tf.stack([tf.matmul(a, b) for a, b in zip(one, other, strict=True)])


def some():
    """Two parts of three."""
    return tf.stack([tf.matmul(part, weights(4, 2)) for part in tf.unstack(feed(3, 5, 4))[:2]])


def wide():
    """Matrices of different widths cannot be stacked, but their sums can."""
    sizes = iter((1, 2, 2))
    return loop(lambda part: tf.matmul(part, weights(4, next(sizes))) + weights(2))


def read_twice():
    """A product that something else reads."""
    products = [tf.matmul(part, weights(4, 2)) for part in tf.unstack(feed(2, 5, 4))]
    return tf.stack(products) + products[0]


TABLE = [
    holds("a matrix each", lambda: loop(lambda part: tf.matmul(part, weights(4, 2))), gone=("Pack", "MatMul")),
    holds("a bias each", lambda: loop(biased), gone=("MatMul", "BiasAdd")),
    holds("a sum each", lambda: loop(lambda part: tf.matmul(part, weights(4, 2)) + weights(2)), gone="MatMul"),
    holds("from the right", lambda: loop(lambda part: tf.matmul(weights(2, 5), part)), gone="MatMul"),
    holds("parts on both sides", both, gone="MatMul"),
    holds("transposed", lambda: loop(lambda part: tf.matmul(part, weights(2, 5), True, True)), gone="MatMul"),
    holds("along time, of any batch", lambda: loop(biased, None, 3, 4, axis=1, stack=1), gone="MatMul"),
    holds("along time, stacked first", lambda: loop(biased, None, 3, 4, axis=1), gone="MatMul"),
    holds("split columns, joined", lambda: split_loop(biased), gone=("MatMul", "ConcatV2")),
    holds("split columns of any batch", lambda: split_loop(biased, None, 12), gone="MatMul"),
    holds("split columns, joined rows", lambda: split_loop(biased, joined=0), gone="MatMul"),
    holds("split rows, joined", lambda: split_loop(biased, 6, 4, axis=0, joined=0), gone="MatMul"),
    holds("split rows, joined columns", lambda: split_loop(biased, 6, 4, axis=0), gone="MatMul"),
    holds("split rows of any number", lambda: split_loop(biased, None, 4, axis=0, joined=-2, sizes=2), gone="MatMul"),
    holds("equal sizes", lambda: split_loop(biased, sizes=[4, 4, 4]), gone="MatMul"),
    holds("split, from the right", lambda: split_loop(gated), gone="MatMul"),
    holds("split and stacked", split_and_stacked, gone="MatMul"),
    holds("unstacked and joined", unstacked_and_joined, gone="MatMul"),
    refuses("parts of different widths", uneven, because="different"),
    refuses("a matrix of any width", any_width, because="known width"),
    refuses("two parts of three", some, because="all parts"),
    refuses("matrices of different shapes", wide, because="different shapes"),
    refuses("a bias per row", lambda: loop(lambda p: tf.matmul(p, weights(4, 2)) + weights(5, 2)), because="vectors"),
    refuses("stacked columns", lambda: loop(biased, stack=2), because="columns"),
    refuses("another reader", read_twice, because="2 consumers"),
]
