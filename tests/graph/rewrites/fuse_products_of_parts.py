"""Rows for `fuse_products_of_parts`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def loop(product, *shape, axis=0, stack=0):
    """Stack a function of each part."""
    return tf.stack([product(part) for part in tf.unstack(feed(*(shape or (3, 5, 4))), axis=axis)], axis=stack)


def biased(part):
    """A product with its own matrix and bias."""
    return tf.nn.bias_add(tf.matmul(part, weights(4, 2)), weights(2))


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
    refuses("two parts of three", some, because="all parts"),
    refuses("matrices of different shapes", wide, because="different shapes"),
    refuses("a bias per row", lambda: loop(lambda p: tf.matmul(p, weights(4, 2)) + weights(5, 2)), because="vectors"),
    refuses("stacked columns", lambda: loop(biased, stack=2), because="columns"),
    refuses("another reader", read_twice, because="2 consumers"),
]
