"""Rows for `drop_neutral_fills`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses

raw = tf.raw_ops


def like(combine, fill, **kwargs):
    """Combine an input with a tensor of its shape."""
    x = feed(None, 4, **kwargs)
    return combine(x, fill(x=x))


def filled(combine, value, **kwargs):
    """Combine an input with a filled tensor."""
    x = feed(None, 4, **kwargs)
    return combine(x, tf.fill(raw.Shape(input=x), tf.constant(value, x.dtype)))


def of_other(shape, other):
    """Multiply by ones of the shape of another tensor."""
    return feed(*shape) * raw.OnesLike(x=feed(*other, name="z"))


TABLE = [
    holds("filled with ones", lambda: filled(tf.multiply, 1), gone=("Mul", "Fill")),
    holds("ones from the left", lambda: like(lambda x, ones: ones * x, raw.OnesLike), gone="Mul"),
    holds("divided by ones", lambda: like(tf.divide, raw.OnesLike), gone="RealDiv"),
    holds("less zeros", lambda: like(tf.subtract, raw.ZerosLike), gone="Sub"),
    holds("integers plus zeros", lambda: like(tf.add, raw.ZerosLike, dtype="int32"), gone="AddV2"),
    holds("integers divided by ones", lambda: like(tf.math.floordiv, raw.OnesLike, dtype="int32"), gone="FloorDiv"),
    holds("true and", lambda: filled(tf.logical_and, True, dtype="bool"), gone="LogicalAnd"),
    holds("ones like another tensor", lambda: of_other((3, 4), (3, 4)), gone="Mul"),
    refuses("filled with another value", lambda: filled(tf.multiply, 2), because="not neutral"),
    refuses("zeros as factors", lambda: like(tf.multiply, raw.ZerosLike), because="not neutral"),
    holds("floats plus zeros", lambda: like(tf.add, raw.ZerosLike), gone="AddV2"),
    refuses("a divisor plus zeros", lambda: 1.0 / like(tf.add, raw.ZerosLike), because="-0"),
    refuses("a divisor less negative zeros", lambda: 1.0 / filled(tf.subtract, -0.0), because="-0"),
    refuses("floats rounded down", lambda: like(tf.math.floordiv, raw.OnesLike), because="rounded down"),
    refuses("another shape", lambda: of_other((1, 4), (3, 4)), because="another shape"),
    refuses("open shapes", lambda: of_other((None, 4), (None, 4)), because="another shape"),
]
