"""Test cases of `push_list_constants`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights


def waiting():
    """Build a sum with a constant that has a control edge."""
    x = feed(3, 4)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=True, data=[1])]):
        constant = weights(3, 4)
    return tf.add_n([x, constant, weights(3, 4)])


def fed_axis():
    """Build a concatenation along an axis that is fed."""
    return tf.concat([feed(3, 4), weights(3, 4), weights(3, 4)], feed(dtype="int32", name="axis") * 0)


TABLE = [
    holds(
        "a sum of four tensors",
        lambda: tf.add_n([weights(3, 4), feed(3, 4), weights(3, 4), tf.exp(feed(3, 4, name="z"))]),
    ),
    holds(
        "half precision",
        lambda: tf.add_n([weights(4, dtype="float16"), feed(4, dtype="float16"), weights(4, dtype="float16")]),
    ),
    holds("integers", lambda: tf.add_n([tf.constant([1, 2]), feed(2, dtype="int32"), tf.constant([3, 4])])),
    holds(
        "adjacent constants in a concatenation",
        lambda: tf.concat([feed(None, 4), weights(2, 4), weights(1, 4), feed(3, 4, name="z")], 0),
    ),
    holds("concatenation along the last axis", lambda: tf.concat([weights(3, 1), weights(3, 2), feed(3, 4)], -1)),
    holds("constants that are not adjacent", lambda: tf.concat([weights(2, 4), feed(3, 4), weights(1, 4)], 0), fires=0),
    holds("one constant", lambda: tf.add_n([feed(3, 4), weights(3, 4)]), fires=0),
    holds("a constant with a control edge", waiting, fires=0),
    refuses(
        "infinities of both signs",
        lambda: tf.add_n([feed(2), tf.constant([np.inf, 1]), tf.constant([-np.inf, 1])]),
        because="not finite",
    ),
    refuses("an overflow", lambda: tf.add_n([feed(1), tf.constant([3e38]), tf.constant([3e38])]), because="not finite"),
    refuses("an axis that is fed", fed_axis, because="axis"),
]
