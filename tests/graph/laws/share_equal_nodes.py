"""Rows for `share_equal_nodes`."""

import tensorflow as tf

from tests.graph.table import feed, holds


def twice(function):
    """The same function of the same input, added up; the constants in it are equal as well."""
    x = feed(2, 3)
    return function(x) + 2.0 * function(x)


def other(function):
    """Two functions of the same input."""
    x = feed(2, 3)
    return function(x, 0.1) + function(x, 0.2)


def either_order(function):
    """The same two inputs, the other way round."""
    x, z = feed(3), feed(3, name="z")
    return function(x, z) / tf.exp(function(z, x))


def random(x):
    """Numbers that differ each time, times zero; the shape and the zero are equal."""
    return x + 0.0 * tf.raw_ops.RandomUniform(shape=tf.constant([3]), dtype="float32", seed=1)


def waited_for():
    """Something waits for the copy that goes."""
    x = feed(3)
    one, other = tf.exp(x), tf.exp(x)
    with tf.control_dependencies([other]):
        return one + tf.nn.relu(x) + other


def outputs(*names):
    """Return equal nodes; those with a name are outputs of the graph."""
    x = feed(3)
    one, other = (tf.exp(x, name=name) for name in names)
    return one + 2.0 * other


TABLE = [
    holds("with an output that comes before", lambda: outputs("asked", None), outputs=["asked"]),
    holds("with an output that comes after", lambda: outputs(None, "asked"), outputs=["asked"]),
    holds("two outputs", lambda: outputs("asked", "too"), outputs=["asked", "too"], fires=0),
    holds("an operation", lambda: twice(tf.exp)),
    holds("an expression with constants", lambda: twice(lambda x: tf.exp(x * tf.constant([1.0, 2.0, 3.0]))), fires=3),
    holds("several outputs", lambda: twice(lambda x: tf.math.top_k(x, 2)[0]), fires=2),
    holds("a copy that is waited for", waited_for),
    holds("a sum in either order", lambda: either_order(tf.add)),
    holds("a difference in either order", lambda: either_order(tf.subtract), fires=0),
    holds("other attributes", lambda: other(tf.nn.leaky_relu), fires=0),
    holds("other constants", lambda: other(tf.multiply), fires=0),
    holds("random numbers", lambda: twice(random), fires=2),
]
