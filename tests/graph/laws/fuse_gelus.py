"""Rows for `fuse_gelus`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops
ROOT = 2**-0.5


def erfc(x, half=0.5, scale=-ROOT):
    """The GELU as TensorFlow 2.21 writes it, after `fold_signs`."""
    return (half * x) * raw.Erfc(x=x * scale)


def erf(x, one=1.0):
    """The GELU as older versions of TensorFlow write it."""
    return 0.5 * x * (one + raw.Erf(x=x / np.sqrt(2.0)))


def tanh(x, power=3.0, slope=0.044715, *, other=None):
    """The approximate GELU as TensorFlow writes it."""
    inner = (x if other is None else other) + slope * raw.Pow(x=x, y=power)
    return 0.5 * x * (1.0 + raw.Tanh(x=np.sqrt(2 / np.pi) * inner))


def vectors(**options):
    """Vectors."""
    return feed(None, 5, **options)


def read_twice():
    """A part of a GELU that something else reads."""
    x = vectors()
    half = 0.5 * x
    return half * raw.Erfc(x=x * -ROOT) + half


TABLE = [
    holds("of TensorFlow 2.21", lambda: erfc(vectors()), gone="Erfc"),
    holds("of older versions", lambda: erf(vectors()), gone="RealDiv"),
    holds("of older versions, in 64 bits", lambda: erf(vectors(dtype="float64")), gone="RealDiv"),
    holds("in 16 bits", lambda: erfc(vectors(dtype="bfloat16")), gone="Erfc"),
    holds("with tanh", lambda: tanh(vectors()), gone="Pow"),
    holds("with tanh, in 64 bits", lambda: tanh(vectors(dtype="float64")), gone="Pow"),
    holds("with tanh, of a product", lambda: tanh(tf.matmul(vectors(), weights(5, 4), name="product")), gone="Pow"),
    holds("halved last", lambda: (x := vectors()) * raw.Erfc(x=x * -ROOT) * 0.5, gone="Erfc"),
    holds("halved before", lambda: (x := vectors()) * (raw.Erfc(x=x * -ROOT) * 0.5), gone="Erfc"),
    refuses("in the form that is recognized", lambda: 0.5 * (1 + raw.Erf(x=(x := vectors()) * ROOT)) * x, because=""),
    refuses("in 64 bits", lambda: erfc(vectors(dtype="float64")), because="in 64 bits"),
    refuses("with tanh and another power", lambda: tanh(vectors(), power=2.0), because=""),
    refuses("with tanh and another number", lambda: tanh(vectors(), slope=0.05), because=""),
    refuses("with tanh of another tensor", lambda: tanh(vectors(), other=vectors(name="z")), because=""),
    refuses("another factor", lambda: erfc(vectors(), half=0.25), because=""),
    refuses("a scale that TensorFlow would replace", lambda: erfc(vectors(), scale=-0.7075), because=""),
    refuses("another scale", lambda: erfc(vectors(), scale=-0.5), because=""),
    refuses("the other sign", lambda: erfc(vectors(), scale=ROOT), because=""),
    refuses("another sum", lambda: erf(vectors(), one=2.0), because=""),
    refuses("of another tensor", lambda: 0.5 * vectors() * raw.Erfc(x=vectors(name="z") * -ROOT), because=""),
    refuses("another reader", read_twice, because="something else reads"),
]
