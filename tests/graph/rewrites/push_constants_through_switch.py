"""Rows for `push_constants_through_switch`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.table import feed, holds, refuses, weights


def branches(on, off, size=4):
    """A condition of version 1 whose sides read constants that were made outside of it."""
    x, p, kernel = feed(3, size), feed(3, name="p"), weights(size, size)
    with version_1():
        return tf.compat.v1.cond(tf.reduce_sum(p) > 0, lambda: on(x, kernel), lambda: off(x, kernel))


def raw(data, *, identity=False):
    """A switch without what `tf.cond` makes around it."""
    off, on = tf.raw_ops.Switch(data=data, pred=tf.reduce_sum(feed(3, name="p")) > 0)
    return tf.raw_ops.Merge(inputs=[tf.exp(off), tf.identity(on) if identity else on])[0]


def again():
    """A switch of a constant that is the condition of another."""
    p = tf.reduce_sum(feed(3, name="p")) > 0
    _, known = tf.raw_ops.Switch(data=tf.constant(True), pred=p)
    first, x = tf.raw_ops.Switch(data=feed(3, 4), pred=p)
    off, on = tf.raw_ops.Switch(data=x, pred=known)
    return tf.raw_ops.Merge(inputs=[tf.exp(off), on, tf.sin(first)])[0]


def waiting():
    """A constant that waits for an effect."""
    with tf.control_dependencies([tf.raw_ops.Assert(condition=feed(name="q") < 1e9, data=[feed(name="r")])]):
        constant = tf.constant([1.0, -2.0, 3.0])
    return raw(constant)


def inner():
    """A constant behind two switches."""
    x, p, q, kernel = feed(3, 4), feed(name="p"), feed(name="q"), weights(4, 4)
    with version_1():
        both = lambda: tf.compat.v1.cond(q > 0, lambda: x @ kernel, lambda: x - 1.0)  # noqa: E731
        return tf.compat.v1.cond(p > 0, both, lambda: x)


TABLE = [
    holds("one side", lambda: branches(lambda x, k: tf.nn.relu(x @ k), lambda x, k: x)),
    holds("both sides", lambda: branches(lambda x, k: x @ k, lambda x, k: tf.exp(x) - k[0]), fires=2),
    holds("by hand", lambda: raw(weights(3))),
    holds("by hand, of which one is kept", lambda: raw(weights(3), identity=True)),
    holds("one in the other", inner, fires=2),
    refuses("a larger one on both sides", lambda: raw(weights(30, 30)), because="held more than once"),
    refuses("the condition of another", again, because="condition of another"),
    refuses("one that waits for an effect", waiting, because="what the condition does not"),
    refuses("what is no constant", lambda: raw(feed(3)), because=""),
]
