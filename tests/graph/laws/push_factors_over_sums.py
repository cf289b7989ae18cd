"""Test cases of `push_factors_over_sums`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def x(*shape):
    """Build a tensor whose operation absorbs no constant."""
    return tf.exp(feed(*(shape or (None, 4))))


def biased(data_format="NHWC", shape=(2, 4, 5, 4)):
    """Build a product, a bias and a product."""
    data = x(*shape) * tf.constant(0.3)
    return tf.raw_ops.BiasAdd(value=data, bias=weights(4, low=1), data_format=data_format) * tf.constant(-3.0)


TABLE = [
    holds("a scaled input", lambda: (x() * weights(4, low=1) + weights(4, low=1)) * tf.constant([2.0, -3, 0.5, 7])),
    holds("constants as first operands", lambda: 7.0 * (weights(4, low=1) + weights(4, low=1) * x())),
    holds("a difference", lambda: (x() * weights(4, low=1) - weights(4, low=1)) * tf.constant(-3.0)),
    holds("two quotients", lambda: (x() / weights(4, low=1) - 0.3) / weights(4, low=2), gone="RealDiv"),
    holds("a larger factor", lambda: (x() * 0.3 + weights(4, low=1)) * weights(4, low=1)),
    holds("a bias", biased),
    holds("integers", lambda: (feed(3, dtype="int32") * 70_000 + 5) * 70_001),
    refuses("a bias along the second axis", lambda: biased("NCHW"), because="second axis"),
    refuses(
        "larger factors", lambda: (x() * weights(4, low=1) + 0.3) * weights(2, 1, low=1), because="would be larger"
    ),
    refuses(
        "larger summands", lambda: (x() * 0.3 + weights(4, low=1)) * weights(2, 1, low=1), because="would be larger"
    ),
    refuses("an overflow", lambda: (x() * 0.3 + 1e38) * 1000.0, because="not be finite"),
    refuses("a product that may overflow", lambda: (x() * 1e30 + 0.3) * 1e-6, because="may overflow"),
    refuses("complex numbers", lambda: (feed(3, dtype="complex64") * 2j + 1j) * 3j, because="complex64"),
]
