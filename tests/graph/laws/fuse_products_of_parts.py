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


def many():
    """Many parts."""
    return split_loop(lambda part: tf.matmul(part, weights(2, 2)), None, 64, sizes=32)


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


def of(parts, product):
    """Stack a function of each of these parts."""
    return tf.stack([product(part) for part in parts])


def indexed(pick, *shape):
    """Parts of a tensor by their indices."""
    x = feed(*(shape or (3, 5, 4)))
    return of([pick(x, index) for index in range(3)], biased)


def squeezed():
    """Parts of a tensor by Split, without the axis."""
    return of([tf.squeeze(part, [0]) for part in tf.split(feed(3, 5, 4), 3)], biased)


def columns(*bounds):
    """Products of slices of the columns."""
    x = feed(None, 12)
    return tf.concat([tf.matmul(x[:, begin:end], weights(end - begin, 2)) for begin, end in bounds], 1)


def row_slices():
    """Products of slices of the rows."""
    x = feed(6, 4)
    return tf.concat([tf.matmul(tf.slice(x, [2 * row, 0], [2, -1]), weights(4, 2)) for row in range(3)], 0)


def with_inputs():
    """Products of parts and other inputs."""
    return of(zip(tf.unstack(feed(2, 5, 4)), [feed(4, 3, name="a"), feed(4, 3, name="b")], strict=True), matmul)


def with_one_input():
    """Products of parts and the same input."""
    z = feed(4, 3, name="z")
    return of([(part, z) for part in tf.unstack(feed(2, 5, 4))], matmul)


def matmul(pair):
    """The product of two matrices."""
    return tf.matmul(*pair)


def activated(*functions):
    """Products with a bias and an activation each."""
    steps = iter(functions)
    return loop(lambda part: next(steps)(biased(part)))


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
    holds("split columns, joined", lambda: split_loop(biased), gone=("MatMul", "Transpose")),
    holds("many split columns, joined", many, gone=("MatMul", "ConcatV2")),
    holds("split columns with a number each", lambda: split_loop(lambda x: tf.matmul(x, weights(4, 2)) + weights(1))),
    holds("split columns of any batch", lambda: split_loop(biased, None, 12), gone="MatMul"),
    holds("split columns, joined rows", lambda: split_loop(biased, joined=0), gone="MatMul"),
    holds("split rows, joined", lambda: split_loop(biased, 6, 4, axis=0, joined=0), gone="MatMul"),
    holds("split rows, joined columns", lambda: split_loop(biased, 6, 4, axis=0), gone="MatMul"),
    holds("split rows of any number", lambda: split_loop(biased, None, 4, axis=0, joined=-2, sizes=2), gone="MatMul"),
    holds("equal sizes", lambda: split_loop(biased, sizes=[4, 4, 4]), gone="MatMul"),
    holds("split, from the right", lambda: split_loop(gated), gone="MatMul"),
    holds("split and stacked", split_and_stacked, gone="MatMul"),
    holds("unstacked and joined", unstacked_and_joined, gone="MatMul"),
    holds("indices", lambda: indexed(lambda x, index: x[index]), gone="MatMul"),
    holds("indices along time", lambda: indexed(lambda x, index: x[:, index], None, 3, 4), gone="MatMul"),
    holds("gathered indices", lambda: indexed(tf.gather), gone="MatMul"),
    holds("squeezed parts", squeezed, gone="MatMul"),
    holds("slices of columns", lambda: columns((0, 4), (4, 8), (8, 12)), gone="MatMul"),
    holds("slices of rows", row_slices, gone="MatMul"),
    holds("other inputs", with_inputs, gone="MatMul"),
    holds("an activation each", lambda: activated(*[tf.nn.relu] * 3), gone="MatMul"),
    holds("the bias first", lambda: loop(lambda part: weights(1, 2) + tf.matmul(part, weights(4, 2))), gone="MatMul"),
    refuses("different activations", lambda: activated(tf.nn.relu, tf.tanh, tf.nn.relu), because=""),
    refuses("one input for all", with_one_input, because="not every factor"),
    refuses("slices that leave columns out", lambda: columns((0, 4), (4, 8)), because="all parts"),
    refuses("slices in another order", lambda: columns((4, 8), (0, 4), (8, 12)), because="all parts"),
    refuses("slices of different widths", lambda: columns((0, 2), (2, 6), (6, 12)), because="different"),
    refuses("parts of different widths", uneven, because="different"),
    refuses("a matrix of any width", any_width, because="known width"),
    refuses("two parts of three", some, because="all parts"),
    refuses("matrices of different shapes", wide, because="different shapes"),
    refuses("a bias per row", lambda: loop(lambda p: tf.matmul(p, weights(4, 2)) + weights(5, 2)), because="vectors"),
    refuses("stacked columns", lambda: loop(biased, stack=2), because="columns"),
    refuses("another reader", read_twice, because="2 consumers"),
]
