"""Rows for `push_constants_across_products`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights


def x(*shape, name="x", dtype="float32"):
    """Build a tensor whose operation absorbs no constant."""
    data = feed(*(shape or (None, 4)), name=name, dtype=dtype)
    return tf.tanh(data) if dtype == "float32" else data


def y(*shape, dtype="float32"):
    """Build another one."""
    return x(*shape, name="z", dtype=dtype)


def factors():
    """Factors of the size of 1."""
    return weights(4, low=1)


TABLE = [
    holds("two products", lambda: (x() * factors()) * (y() * factors())),
    holds("constants as first operands", lambda: (2.0 * x()) * (factors() * y())),
    holds("quotients", lambda: (x() / factors()) * (y() / factors())),
    holds("a quotient of products", lambda: (x() * factors()) / (tf.exp(y()) * 3.0)),
    holds("a quotient of quotients", lambda: (x() / factors()) / (tf.exp(y()) / factors())),
    holds("four products", lambda: ((x() * 2.0) * (y() * 3.0)) * ((tf.exp(y()) * 4.0) * (tf.exp(x()) * 5.0)), fires=3),
    holds("integers", lambda: (x(3, dtype="int32") * 2**16) * (y(3, dtype="int32") * 2**17)),
    refuses("a scale of a kernel", lambda: ((x() @ weights(4, 4)) * factors()) * (y() * 3.0), because="kernel"),
    refuses("different shapes", lambda: (x(3, 1) * 2.0) * (y(1, 5) * 3.0), because="same shape"),
    refuses("unknown shapes", lambda: (unknown(x()) * 2.0) * (y() * 3.0), because="same shape"),
    refuses("a zero", lambda: (x() * 0.0) * (y() * 3.0), because="may overflow"),
    refuses("factors that overflow", lambda: (x() * 1e30) * (y() * 1e30), because="may overflow"),
    refuses("a larger constant", lambda: (x(2, 4) * weights(2, 1, low=1)) * (y(2, 4) * factors()), because="larger"),
    refuses("complex numbers", lambda: (x(3, dtype="complex64") * 2j) * (y(3, dtype="complex64") * 3j), because="c"),
]
