"""Rows for `fuse_products_of_one_input`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def rows(dtype="float32"):
    """Rows of three."""
    return feed(None, 3, dtype=dtype)


def part(x, width, *, bias=True, **options):
    """A product with a matrix, its bias, and a Reshape."""
    kernel = weights(*((width, 3) if options.get("transpose_b") else (3, width)), dtype=x.dtype.name)
    product = raw.MatMul(a=x, b=kernel, **options)
    return flat(raw.BiasAdd(value=product, bias=weights(width, dtype=x.dtype.name)) if bias else product)


def flat(x):
    """A vector of all elements."""
    return raw.Reshape(tensor=x, shape=[-1])


def together(*parts):
    """One vector of several."""
    return raw.ConcatV2(values=parts, axis=0)


def with_relu(x):
    """Two products, one with an activation."""
    return together(part(x, 2), flat(raw.Relu(features=raw.MatMul(a=x, b=weights(3, 2)))))


def with_output(x):
    """Two products, one as an output."""
    return together(part(x, 2), flat(raw.MatMul(a=x, b=weights(3, 2), name="product")))


def with_fed_kernel(x):
    """Two products, one without a constant kernel."""
    return together(part(x, 2), flat(raw.MatMul(a=x, b=feed(3, 2, name="kernel"))))


def with_control_edge(x):
    """Two products, one after a control edge."""
    kernel = weights(3, 2)
    with tf.control_dependencies([tf.tanh(x)]):
        product = raw.MatMul(a=x, b=kernel)
    return together(part(x, 2, bias=False), flat(product))


TABLE = [
    holds("two products", lambda: together(part(x := rows(), 2), part(x, 2))),
    holds("three of several widths", lambda: together(part(x := rows(), 2), part(x, 1), part(x, 4))),
    holds("without biases", lambda: together(part(x := rows(), 2, bias=False), part(x, 2, bias=False)), gone="BiasAdd"),
    holds("transposed kernels", lambda: together(*[part(x, 2, transpose_b=True) for x in [rows()] for _ in "ab"])),
    holds("in 64 bits", lambda: together(part(x := rows("float64"), 2), part(x, 2))),
    holds(
        "some with a bias",
        lambda: together(part(x := rows(), 2), part(x, 2, bias=False), part(x, 3), part(x, 3, bias=False)),
        fires=2,
    ),
    refuses("of two tensors", lambda: together(part(rows(), 2), part(feed(None, 3, name="z"), 2)), because=""),
    refuses("one with a bias, one without", lambda: together(part(x := rows(), 2), part(x, 2, bias=False)), because=""),
    refuses("an activation", lambda: with_relu(rows()), because="something else than a Reshape"),
    refuses("an output", lambda: with_output(rows()), because="is an output", outputs=("product",)),
    refuses("a kernel that is fed", lambda: with_fed_kernel(rows()), because="not a constant"),
    refuses("a control edge", lambda: with_control_edge(rows()), because="control edges"),
]
