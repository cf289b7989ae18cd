"""Test cases of `push_constants_together`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights


def x():
    """Build a tensor whose operation absorbs no constant."""
    return tf.exp(feed(None, 4))


def never_taken():
    """Build constants whose shapes cannot be broadcast, in a branch that is not executed."""
    data = x()
    alive, dead = tf.raw_ops.Switch(data=unknown(data), pred=tf.reduce_sum(data) < 0)
    return tf.raw_ops.Merge(inputs=[(dead + weights(2)) + weights(3), alive])[0]


def biases(first="NHWC", second="NHWC", shape=(2, 3, 3, 3)):
    """Build two biases, one after the other."""
    data = tf.raw_ops.BiasAdd(value=tf.exp(feed(*shape)), bias=weights(3, low=1), data_format=first)
    return tf.raw_ops.BiasAdd(value=data, bias=weights(3, low=1), data_format=second)


def bias_and(constant, data_format="NHWC", shape=(2, 4)):
    """Build a bias, and a sum with another constant."""
    data = tf.exp(feed(*shape))
    return tf.raw_ops.BiasAdd(value=data, bias=weights(4, low=1), data_format=data_format) + constant


def sum_and_bias(constant):
    """Build a sum with a constant, and then a bias."""
    return tf.nn.bias_add(x() + constant, weights(4, low=1))


TABLE = [
    holds("two sums", lambda: (x() + weights(4, low=1)) + weights(4, low=1)),
    holds("constants as first operands", lambda: weights(4, low=1) + (weights(4, low=1) + x())),
    holds("a difference, then a sum", lambda: (x() - weights(4, low=1)) + tf.constant(9.0), gone="Sub"),
    holds("a sum, then a difference", lambda: (x() + weights(4, low=1)) - tf.constant(9.0), gone="Sub"),
    holds("two differences", lambda: (x() - weights(4, low=1)) - weights(4, low=1), gone="Sub"),
    holds("two differences, one by a scalar", lambda: (x() - weights(4, low=1)) - 3.0, gone="Sub"),
    holds("two products", lambda: (x() * weights(4, low=1)) * weights(1, 4, low=1)),
    holds(
        "a quotient, then a product", lambda: (x() / weights(4, low=1)) * tf.constant([0.5, -1, 0, 0.1]), gone="RealDiv"
    ),
    holds(
        "a product, then a quotient", lambda: (x() * tf.constant([6.0, -8, 0.5, 9])) / weights(4, low=2), gone="RealDiv"
    ),
    holds("a quotient of a quotient", lambda: (x() / weights(4, low=1)) / weights(4, low=2), gone="RealDiv"),
    holds("four products", lambda: x() * weights(4, low=1) * 2.0 * weights(4, low=1) * -3.0, fires=3),
    holds("integers", lambda: (feed(3, dtype="int32") + (2**31 - 1)) + 5),
    holds("a product with a zero factor", lambda: (x() * tf.constant([0.0, 1, 2, 3])) * weights(4, low=1)),
    holds(
        "a sum that is zero where both summands are zero", lambda: (x() + tf.constant([0.0, 1, 2, 3])) + tf.zeros([4])
    ),
    holds("two biases", biases),
    holds("two biases along the second axis", lambda: biases("NCHW", "NCHW")),
    holds("a bias and a vector", lambda: bias_and(weights(4, low=1)), gone="AddV2"),
    holds("a bias and a number", lambda: bias_and(tf.constant(9.0)), gone="AddV2"),
    holds("a bias and a row", lambda: bias_and(weights(1, 4, low=1)), gone="BiasAdd"),
    holds("a vector and a bias", lambda: sum_and_bias(weights(4, low=1)), gone="AddV2"),
    holds(
        "a bias along the second axis and a number", lambda: bias_and(tf.constant(9.0), "NCHW", (2, 4, 5)), gone="AddV2"
    ),
    refuses("biases along different axes", lambda: biases("NCHW"), because="different axes"),
    refuses(
        "a bias along the second axis and a vector",
        lambda: bias_and(weights(4, low=1), "NCHW", (2, 4, 5, 4)),
        because="no number",
    ),
    refuses(
        "summands that cancel in some elements",
        lambda: (x() + tf.constant([1.0, 1e8, 1, 1])) - tf.constant([0.5, 1e8, 0, 0]),
        because="cancel",
    ),
    refuses("summands that cancel except for a small rest", lambda: (x() + 1000.0) - 999.5, because="cancel"),
    refuses("complex numbers", lambda: (feed(3, dtype="complex64") * 2j) * 3j, because="complex64"),
    refuses("shapes that cannot be broadcast", never_taken, because="cannot be broadcast"),
    refuses("a larger constant", lambda: (x() + weights(2, 1, low=1)) + weights(4, low=1), because="would be larger"),
    refuses("an overflow", lambda: (x() * tf.constant(1e30)) * tf.constant(1e30), because="not be finite"),
    refuses("an underflow", lambda: (x() * tf.constant(1e-30)) * tf.constant(1e-30), because="would be zero"),
    refuses("a product that may overflow", lambda: (x() * 1e30) * 1e-30, because="may be infinite"),
    refuses("a product that may underflow", lambda: (x() * 1e-30) * 1e35, because="may be infinite or zero"),
    refuses("a quotient that may overflow", lambda: (x() / 0.01) / 1000.0, because="may be infinite"),
    refuses("summands that cancel", lambda: (x() + 1e8) - 1e8, because="cancel"),
    refuses("a division by zero", lambda: (x() / tf.constant(0.0)) * tf.constant(2.0), because="not be finite"),
]
