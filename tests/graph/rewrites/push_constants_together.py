"""Rows for `push_constants_together`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def x():
    """Nothing that a constant could be folded into."""
    return tf.exp(feed(None, 4))


TABLE = [
    holds("two sums", lambda: (x() + weights(4, low=1)) + weights(4, low=1)),
    holds("the constants first", lambda: weights(4, low=1) + (weights(4, low=1) + x())),
    holds("less, then more", lambda: (x() - weights(4, low=1)) + tf.constant(9.0), gone="Sub"),
    holds("more, then less", lambda: (x() + weights(4, low=1)) - tf.constant(9.0), gone="Sub"),
    holds("less and less", lambda: (x() - weights(4, low=1)) - weights(4, low=1), gone="Sub"),
    holds("less, then less of one number", lambda: (x() - weights(4, low=1)) - 3.0, gone="Sub"),
    holds("two products", lambda: (x() * weights(4)) * weights(1, 4)),
    holds("a quotient, then a product", lambda: (x() / weights(4, low=1)) * weights(4), gone="RealDiv"),
    holds("a product, then a quotient", lambda: (x() * weights(4)) / weights(4, low=2), gone="RealDiv"),
    holds("a quotient of a quotient", lambda: (x() / weights(4, low=1)) / weights(4, low=2), gone="RealDiv"),
    holds("four in a row", lambda: x() * weights(4) * weights() * weights(4) * weights(), fires=3),
    holds("integers", lambda: (feed(3, dtype="int32") + (2**31 - 1)) + 5),
    refuses("a larger constant", lambda: (x() + weights(2, 1, low=1)) + weights(4, low=1), because="would be larger"),
    refuses("an overflow", lambda: (x() * tf.constant(1e30)) * tf.constant(1e30), because="not be finite"),
    refuses("an underflow", lambda: (x() * tf.constant(1e-30)) * tf.constant(1e-30), because="would be zero"),
    refuses("what cancels", lambda: (x() + 1e8) - 1e8, because="cancel"),
    refuses("a division by zero", lambda: (x() / tf.constant(0.0)) * tf.constant(2.0), because="not be finite"),
]
