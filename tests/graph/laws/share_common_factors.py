"""Rows for `share_common_factors`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def integers(name="x", *shape):
    """Integers."""
    return feed(*(shape or (3,)), dtype="int32", name=name)


def of(dtype, combine=tf.add):
    """The sum of two products with a common factor."""
    x, y, z = (feed(3, dtype=dtype, name=name) for name in "xyz")
    return combine(x * y, z * x)


def scaled(first, second, combine=tf.add):
    """The sum of two products with constants."""
    x = feed(None, 4)
    return combine(x * first, second * x)


TABLE = [
    holds("integers", lambda: of("int32")),
    holds("a difference", lambda: of("int32", tf.subtract)),
    holds("of other shapes", lambda: (x := integers()) * integers("y", 2, 1) + x * integers("z")),
    holds("constants of the same sign", lambda: scaled(weights(4, low=1), weights(4, low=1))),
    holds("negative constants", lambda: scaled(-2.0, -3.0)),
    holds("a difference of constants", lambda: scaled(2.0, -3.0, tf.subtract)),
    refuses("floats", lambda: of("float32"), because="may differ"),
    refuses("constants of different signs", lambda: scaled(2.0, -3.0), because="may differ"),
    refuses("a zero", lambda: scaled(2.0, 0.0), because="may differ"),
    refuses("an overflow", lambda: scaled(3e38, 3e38), because="not be finite"),
    refuses("no common factor", lambda: integers() * integers("y") + integers("z") * integers("w"), because="common"),
    refuses("complex numbers", lambda: (x := feed(3, dtype="complex64")) * 2j + x * 3j, because="sign"),
]
