"""Test cases of `push_constants_through_switch`."""

import tensorflow as tf

from tests.graph.frames import version_1
from tests.graph.table import feed, holds, refuses, weights


def branches(on, off, size=4):
    """Build a TensorFlow 1 condition whose branches capture constants."""
    x, p, kernel = feed(3, size), feed(3, name="p"), weights(size, size)
    with version_1():
        return tf.compat.v1.cond(tf.reduce_sum(p) > 0, lambda: on(x, kernel), lambda: off(x, kernel))


def raw(data, *, identity=False):
    """Build a Switch without the other nodes that `tf.cond` creates."""
    off, on = tf.raw_ops.Switch(data=data, pred=tf.reduce_sum(feed(3, name="p")) > 0)
    return tf.raw_ops.Merge(inputs=[tf.exp(off), tf.identity(on) if identity else on])[0]


def condition_of_another():
    """Build a Switch whose constant is the condition of another Switch."""
    p = tf.reduce_sum(feed(3, name="p")) > 0
    _, condition = tf.raw_ops.Switch(data=tf.constant(True), pred=p)
    first, x = tf.raw_ops.Switch(data=feed(3, 4), pred=p)
    off, on = tf.raw_ops.Switch(data=x, pred=condition)
    return tf.raw_ops.Merge(inputs=[tf.exp(off), on, tf.sin(first)])[0]


def waiting():
    """Build a Switch of a constant that waits for an effect."""
    with tf.control_dependencies([tf.raw_ops.Assert(condition=feed(name="q") < 1e9, data=[feed(name="r")])]):
        constant = tf.constant([1.0, -2.0, 3.0])
    return raw(constant)


def nested():
    """Build nested conditions: the constant passes through two Switch nodes."""
    x, p, q, kernel = feed(3, 4), feed(name="p"), feed(name="q"), weights(4, 4)
    with version_1():
        inner = lambda: tf.compat.v1.cond(q > 0, lambda: x @ kernel, lambda: x - 1.0)  # noqa: E731
        return tf.compat.v1.cond(p > 0, inner, lambda: x)


TABLE = [
    holds("one branch", lambda: branches(lambda x, k: tf.nn.relu(x @ k), lambda x, k: x)),
    holds("both branches", lambda: branches(lambda x, k: x @ k, lambda x, k: tf.exp(x) - k[0]), fires=2),
    holds("raw operations", lambda: raw(weights(3))),
    holds("raw operations, with an Identity in one branch", lambda: raw(weights(3), identity=True)),
    holds("nested conditions", nested, fires=2),
    refuses("a large constant in both branches", lambda: raw(weights(30, 30)), because="stored more than once"),
    refuses("the condition of another Switch", condition_of_another, because="condition of another Switch"),
    refuses("a constant that waits for an effect", waiting, because="what the condition does not wait for"),
    refuses("a placeholder", lambda: raw(feed(3)), because=""),
]
