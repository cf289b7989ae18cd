"""Rows for `push_factors_before_products`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def heads(name="x"):
    """Queries or keys of two heads, from a kernel."""
    return raw.Reshape(tensor=raw.MatMul(a=feed(6, 4, name=name), b=weights(4, 4)), shape=[2, 3, 2, 2])


def fed(name="z"):
    """Queries or keys of two heads, fed."""
    return feed(2, 3, 2, 2, name=name)


def scores(q, k):
    """Products of queries and keys."""
    return raw.Einsum(inputs=[q, k], equation="btnh,bsnh->bnts")


def read_twice():
    """Scores that something else reads."""
    products = scores(heads(), fed())
    return products * 0.5 + products


TABLE = [
    holds("a power of two", lambda: scores(heads(), fed()) * 0.5),
    holds("another factor", lambda: scores(heads(), fed()) * 0.3),
    holds("the kernel before the keys", lambda: scores(fed(), heads()) * 0.5),
    holds("a quotient", lambda: scores(heads(), fed()) / 3.0),
    holds("a batched product", lambda: raw.BatchMatMulV2(x=heads(), y=fed(), adj_y=True) * np.float32([0.5])),
    refuses("one factor for each row", lambda: scores(heads(), fed()) * weights(3, 1), because="one number"),
    refuses("more axes", lambda: scores(heads(), fed()) * weights(1, 1, 1, 1, 1), because="one number"),
    refuses("a negative factor", lambda: scores(heads(), fed()) * -0.5, because="not positive"),
    refuses("infinity", lambda: scores(heads(), fed()) * np.inf, because="not positive"),
    refuses("integers", lambda: scores(*[tf.cast(fed(n), tf.int32) for n in "ab"]) * 2, because="one number"),
    refuses("a divisor", lambda: 0.5 / scores(heads(), fed()), because=""),
    refuses("no kernel", lambda: scores(fed("a"), fed("b")) * 0.5, because="from a kernel"),
    refuses("another reader", read_twice, because="2 consumers"),
]
