"""Test cases of `push_constants_over_trees`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights


def x(*shape, name="x", dtype="float32"):
    """Build a tensor whose operation absorbs no constant."""
    data = feed(*(shape or (None, 4)), name=name, dtype=dtype)
    return tf.tanh(data) if dtype == "float32" else data


def y(*shape, dtype="float32"):
    """Build another one."""
    return x(*(shape or (None, 4)), name="z", dtype=dtype)


def factors():
    """Build factors of the size of 1."""
    return weights(4, low=1)


def bias(data, data_format="NHWC", count=4):
    """Add a bias."""
    return tf.raw_ops.BiasAdd(value=data, bias=weights(count, low=1), data_format=data_format)


def kernel_bias():
    """Build the sum of a dense layer and another one."""
    return tf.nn.bias_add(x() @ weights(4, 4), weights(4, low=1)) + (y() + 3.0)


TABLE = [
    holds("two sums", lambda: (x() + weights(4, low=1)) + (y() + weights(4, low=1))),
    holds("constants as first operands", lambda: (2.0 + x()) + (weights(4, low=1) + y())),
    holds("a difference", lambda: (x() - 3.0) + (y() + 1.0)),
    holds("two differences", lambda: (x() - 3.0) + (y() - 1.0), gone="Sub"),
    holds("a difference of sums", lambda: (x() + 3.0) - (y() + 1.0)),
    holds("a difference of differences", lambda: (x() - 3.0) - (y() - 1.0)),
    holds("a difference of a sum and a difference", lambda: (x() + 3.0) - (y() - weights(4, low=1))),
    holds("a number minus x", lambda: (1.0 - x()) + (y() + 2.0)),
    holds("x, and a number minus y", lambda: (x() + 1.0) + (weights(4, low=1) - y())),
    holds("two numbers minus", lambda: (1.0 - x()) + (2.0 - y())),
    holds("a difference of numbers minus", lambda: (1.0 - x()) - (3.0 - y())),
    holds("a sum minus a number minus y", lambda: (x() + 1.0) - (3.0 - y())),
    holds("a number minus x, minus a sum", lambda: (1.0 - x()) - (y() + 3.0)),
    holds("integers minus", lambda: (7 - x(3, dtype="int32")) - (y(3, dtype="int32") - 2**31)),
    holds("biases", lambda: bias(x()) + bias(y()), gone="BiasAdd"),
    holds("a bias and a number", lambda: bias(x()) + (y() + 2.0), gone="BiasAdd"),
    holds("a row and a column of the same size", lambda: (x(4, 4) + weights(1, 4, low=1)) + (y(4, 4) + 1.0)),
    holds("four sums", lambda: ((x() + 1.0) + (y() + 2.0)) + ((tf.exp(y()) + 3.0) + (tf.exp(x()) + 4.0)), fires=1),
    holds("integers", lambda: (x(3, dtype="int32") + (2**31 - 1)) + (y(3, dtype="int32") + 5)),
    holds("zeros", lambda: (x() + tf.zeros([4])) + (y() + tf.zeros([4]))),
    refuses("a bias of a kernel", kernel_bias, because=""),
    refuses("biases along the second axis", lambda: bias(x(2, 4, 3), "NCHW") + (y(2, 4, 3) + 1.0), because=""),
    refuses("different shapes", lambda: (x(3, 1) + 1.0) + (y(1, 5) + 2.0), because="shape of the result"),
    refuses("unknown shapes", lambda: (unknown(x()) + 1.0) + (y() + 2.0), because="shape of the result"),
    refuses(
        "a larger constant", lambda: (x(2, 4) + weights(2, 1, low=1)) + (y(2, 4) + weights(4, low=1)), because="larger"
    ),
    refuses("summands that cancel", lambda: (x() + 1e8) + (y() - 1e8), because="cancel"),
    refuses("an overflow", lambda: (x() + 3e38) + (y() + 3e38), because="not be finite"),
    refuses(
        "a sum that something else reads",
        lambda: (lambda s: s + (y() + 2.0) + tf.exp(s))(x() + 1.0),
        because="",
    ),
    refuses(
        "complex numbers",
        lambda: (x(3, dtype="complex64") + 2j) + (y(3, dtype="complex64") + 3j),
        because="complex64",
    ),
    holds("a constant before two sums, and one after", lambda: ((x() + 1.0) + y()) + 2.0),
    holds("a bias after it", lambda: bias((x() + 3.0) + y())),
    holds("two biases", lambda: bias(bias(x()) + y())),
    holds("five sums", lambda: (1.0 + x()) + (y() + (tf.exp(x()) + (weights(4, low=1) + tf.exp(y()))))),
    holds("differences", lambda: (2.0 - (x() - y())) + (tf.exp(x()) - 5.0)),
    holds("a number minus both", lambda: 7.0 - (x() + (y() + 3.0))),
    holds("a number minus a difference", lambda: 7.0 - ((x() - 2.0) - y())),
    holds("an operand of another shape", lambda: ((x(3, 4) + 1.0) + y(3, 1)) + (tf.exp(x(3, 4)) + 2.0)),
    holds("a number after unknown shapes", lambda: ((unknown(x()) + 1.0) + y()) + 2.0),
    holds("integers in a tree", lambda: (7 - (x(3, dtype="int32") - y(3, dtype="int32"))) - 2**31),
    holds("products in a tree", lambda: ((x() * factors()) * y()) * factors()),
    holds("quotients in a tree", lambda: ((x() / factors()) / tf.exp(y())) * (tf.exp(x()) * 3.0)),
    refuses("a divided constant", lambda: (2.0 / tf.exp(x())) * (y() * 3.0), because=""),
    refuses("a bias of a kernel in a tree", lambda: ((x() @ weights(4, 4) + 3.0) + y()) + tf.exp(y()), because=""),
    holds("two products", lambda: (x() * factors()) * (y() * factors())),
    holds("factors as first operands", lambda: (2.0 * x()) * (factors() * y())),
    holds("quotients", lambda: (x() / factors()) * (y() / factors())),
    holds("a quotient of products", lambda: (x() * factors()) / (tf.exp(y()) * 3.0)),
    holds("a quotient of quotients", lambda: (x() / factors()) / (tf.exp(y()) / factors())),
    holds("four products", lambda: ((x() * 2.0) * (y() * 3.0)) * ((tf.exp(y()) * 4.0) * (tf.exp(x()) * 5.0)), fires=1),
    holds("products of integers", lambda: (x(3, dtype="int32") * 2**16) * (y(3, dtype="int32") * 2**17)),
    refuses("a scale of a kernel", lambda: ((x() @ weights(4, 4)) * factors()) * (y() * 3.0), because=""),
    refuses("factors of different shapes", lambda: (x(3, 1) * 2.0) * (y(1, 5) * 3.0), because="shape of the result"),
    refuses("factors of unknown shapes", lambda: (unknown(x()) * 2.0) * (y() * 3.0), because="shape of the result"),
    refuses("a zero", lambda: (x() * 0.0) * (y() * 3.0), because="may overflow"),
    refuses("factors that overflow", lambda: (x() * 1e30) * (y() * 1e30), because="may overflow"),
    refuses("a larger factor", lambda: (x(2, 4) * weights(2, 1, low=1)) * (y(2, 4) * factors()), because="larger"),
    refuses("complex factors", lambda: (x(3, dtype="complex64") * 2j) * (y(3, dtype="complex64") * 3j), because="c"),
]
