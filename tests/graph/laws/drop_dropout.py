"""Rows for `drop_dropout`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def uniform(shape, stateless=False):
    """Numbers from 0 to 1."""
    if stateless:
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=[1, 2])
        return tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=1)
    return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32, seed=1, seed2=2)


def selected(x, rate=0.0, random=None, select=tf.raw_ops.SelectV2, **kwargs):
    """Return a dropout as TensorFlow 2 writes it."""
    mask = tf.greater_equal(uniform(tf.shape(x), **kwargs) if random is None else random, tf.constant(rate))
    if select is tf.raw_ops.Select:
        return select(condition=mask, x=x, y=tf.zeros_like(x))
    return select(condition=mask, t=x, e=tf.constant(0.0))


def cast(x, rate=0.0):
    """Return a dropout as TensorFlow 1.14 wrote it."""
    return x * tf.cast(tf.greater_equal(uniform(tf.shape(x)), tf.constant(rate)), tf.float32)


def floored(x, keep=1.0):
    """Return a dropout as TensorFlow 1.0 wrote it."""
    return x * tf.floor(tf.constant(keep) + uniform(tf.shape(x)))


TABLE = [
    holds("SelectV2", lambda: selected(feed(None, 3)), gone="SelectV2"),
    holds("Select", lambda: selected(feed(3, 4), select=tf.raw_ops.Select), gone="Select"),
    holds("drawn from a seed", lambda: selected(feed(3), stateless=True), gone="SelectV2"),
    holds("a mask of 0 and 1", lambda: cast(feed(None, 3)), gone="Cast"),
    holds("a mask that is rounded", lambda: floored(feed(None, 3)), gone="Floor"),
    holds("infinity", lambda: cast(feed(3) / 0.0), gone="Cast"),
    refuses("one that drops", lambda: tf.abs(selected(feed(3), 0.25)) * 0.0, because="drops 25% at random"),
    refuses("a mask that drops", lambda: tf.abs(cast(feed(3), 0.5)) * 0.0, because="drops 50% at random"),
    refuses("a sum that drops", lambda: tf.abs(floored(feed(3), 0.9)) * 0.0, because="drops 10% at random"),
    refuses("other numbers", lambda: selected(feed(3), random=feed(3, name="u")), because="no random numbers"),
    refuses(
        "more numbers than data", lambda: selected(feed(1, 3), random=uniform([2, 3])), because="make the shape larger"
    ),
    refuses(
        "a rate for each",
        lambda: selected(feed(None, 3), [[0.0], [0.0]]),
        because="make the shape larger",
    ),
]
