"""Rows for `fuse_layer_norms`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights

raw = tf.raw_ops


def moments(x, axes=(-1,), *, keep=True):
    """Mean, and mean of squared differences."""
    mean = raw.Mean(input=x, axis=axes, keep_dims=keep)
    return mean, raw.Mean(input=raw.SquaredDifference(x=x, y=mean), axis=axes, keep_dims=keep)


def keras(x, gain=None, bias=None, axes=(-1,)):
    """A layer normalization as Keras 3 writes it."""
    mean, variance = moments(x, axes)
    gained = raw.Rsqrt(x=variance + 1e-3) * (weights(1, 6, low=0.5) if gain is None else gain)
    negated = raw.Neg(x=mean) * gained
    return x * gained + (negated if bias == "none" else negated + (weights(1, 6) if bias is None else bias))


def tf_keras(x):
    """A layer normalization as tf_keras writes it where it does not use FusedBatchNormV3."""
    mean, variance = moments(x)
    gained = raw.Rsqrt(x=variance + 1e-3) * weights(6, low=0.5)
    return x * gained + (weights(6) - mean * gained)


def centered(x):
    """One with the square of the centered input, as in other libraries."""
    mean = tf.reduce_mean(x, -1, keepdims=True)
    gained = raw.Rsqrt(x=tf.reduce_mean(tf.square(x - mean), -1, keepdims=True) + 1e-3) * weights(6, low=0.5)
    return (weights(6) - mean * gained) + gained * x


def read_twice():
    """One whose scale something else reads."""
    x = rows()
    mean, variance = moments(x)
    gained = raw.Rsqrt(x=variance + 1e-3) * weights(6, low=0.5)
    return x * gained + (weights(6) - mean * gained) + gained


def of_another(x, z):
    """One with the mean of another tensor."""
    (mean, _), (_, variance) = moments(z), moments(x)
    gained = raw.Rsqrt(x=variance + 1e-3) * weights(6, low=0.5)
    return x * gained + (weights(6) - mean * gained)


def rows(name="x"):
    """Rows of an open number."""
    return feed(None, 6, name=name)


TABLE = [
    holds("of Keras 3", lambda: keras(rows()), gone=("SquaredDifference", "Neg")),
    holds("of tf_keras", lambda: tf_keras(rows()), gone="SquaredDifference"),
    holds("of other libraries", lambda: centered(rows())),
    holds("of sequences", lambda: keras(feed(None, 3, 6), weights(1, 1, 6), weights(1, 1, 6)), gone="Neg"),
    holds("without a bias", lambda: keras(rows(), bias="none"), gone="Neg"),
    refuses("a number as gain", lambda: keras(rows(), tf.constant(2.0)), because="one number for each"),
    refuses("a gain for each row", lambda: keras(feed(6, 6), weights(6, 1, low=0.5)), because="one number for each"),
    refuses("along another axis", lambda: keras(feed(4, 6), axes=[0]), because="along the last axis"),
    refuses("along two axes", lambda: keras(feed(2, 3, 6), axes=[1, 2]), because="along the last axis"),
    refuses("an unknown rank", lambda: keras(unknown(feed(2, 6))), because="rank"),
    refuses("a bias that is fed", lambda: keras(rows(), bias=feed(6, name="b")), because=""),
    refuses("a gain that is fed", lambda: keras(rows(), feed(6, name="g")), because=""),
    refuses("the mean of another tensor", lambda: of_another(rows(), rows("z")), because=""),
    refuses("another reader", read_twice, because="something else reads"),
]
