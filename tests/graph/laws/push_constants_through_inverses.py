"""Rows for `push_constants_through_inverses`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def x(dtype="float32"):
    """Vectors."""
    return feed(None, 4, dtype=dtype)


def factors():
    """Factors of the size of 1."""
    return weights(4, low=1)


TABLE = [
    holds("a difference, then a sum", lambda: (factors() - x()) + factors(), gone="AddV2"),
    holds("a difference, then a difference", lambda: (factors() - x()) - 9.0),
    holds("a difference from a sum", lambda: 9.0 - (x() + factors()), gone="AddV2"),
    holds("a difference from a difference", lambda: 9.0 - (factors() - x()), gone="Sub"),
    holds("a difference from a difference of the data", lambda: 9.0 - (x() - factors())),
    holds("a sum of a constant and a difference", lambda: factors() + (factors() - x()), gone="AddV2"),
    holds("integers", lambda: 5 - (3 - x("int32")), gone="Sub"),
    holds("integers that wrap around", lambda: (2**31 - 1) - (x("int32") + (-5))),
    holds("a difference from a difference from a sum", lambda: 19.0 - (5.0 - (2.0 - x())), fires=2),
    holds("a quotient, then a product", lambda: (factors() / x()) * 3.0, gone="Mul"),
    holds("a quotient, then a quotient", lambda: (factors() / x()) / factors()),
    holds("a quotient by a product", lambda: factors() / (x() * factors()), gone="Mul"),
    holds("a quotient by a quotient", lambda: factors() / (factors() / x()), gone="RealDiv"),
    holds("a quotient by a quotient of the data", lambda: factors() / (x() / factors())),
    refuses("summands that cancel", lambda: 1e8 - (x() + 1e8), because="cancel"),
    refuses("a large factor", lambda: (1e8 / x()) * 3.0, because="may overflow"),
    refuses("a zero", lambda: (tf.zeros([4]) / x()) * 3.0, because="may overflow"),
    refuses("a larger constant", lambda: (weights(3, 1, low=1) - feed(3, 4)) + factors(), because="larger"),
    refuses("an overflow", lambda: (3e38 - x()) + 3e38, because="not be finite"),
    refuses("complex numbers", lambda: 2j - (3j - x("complex64")), because="complex64"),
]
