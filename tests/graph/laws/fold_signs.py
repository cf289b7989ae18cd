"""Rows for `fold_signs`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def read_twice():
    """A product that something else reads."""
    product = raw.Mul(x=feed(2, 3), y=weights(3))
    return raw.Neg(x=product) + product


TABLE = [
    holds("the sign of a product", lambda: raw.Neg(x=raw.Mul(x=feed(2, 3), y=weights(3))), gone="Neg"),
    holds("the constant first", lambda: raw.Neg(x=raw.Mul(x=weights(3), y=feed(2, 3))), gone="Neg"),
    holds("of a factor", lambda: raw.Mul(x=raw.Neg(x=feed(2, 3)), y=weights(3)), gone="Neg"),
    holds("of a quotient", lambda: raw.Neg(x=raw.RealDiv(x=feed(2, 3), y=weights(3))), gone="Neg"),
    holds("of a dividend", lambda: raw.RealDiv(x=raw.Neg(x=feed(2, 3)), y=weights(3)), gone="Neg"),
    refuses("another reader", read_twice, because="2 consumers"),
]
