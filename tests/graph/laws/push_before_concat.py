"""Rows for `push_before_concat`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def parts(size=8, *, second=True):
    """Two convolutions of one input, concatenated."""
    x = feed(None, size, size, 4)
    one = tf.nn.bias_add(tf.nn.conv2d(x, weights(3, 3, 4, 3), 1, "SAME"), weights(3))
    return tf.concat([one, tf.nn.conv2d(x, weights(1, 1, 4, 5), 1, "SAME") if second else x], -1)


def norm(x, channels=8, **kwargs):
    """A batch norm."""
    gamma, variance = (weights(channels, low=0.5) for _ in range(2))
    beta, mean = (weights(channels) for _ in range(2))
    return raw.FusedBatchNormV3(x=x, scale=gamma, offset=beta, mean=mean, variance=variance, is_training=False)[0]


def read_twice():
    """A concatenation that something else reads."""
    both = parts()
    return both * weights(8) + both


TABLE = [
    holds("a batch norm", lambda: norm(parts()), gone="FusedBatchNormV3"),
    holds("a factor per channel", lambda: parts() * weights(8)),
    holds("one factor", lambda: 3.0 * parts()),
    holds("a bias", lambda: tf.nn.bias_add(parts(), weights(8))),
    holds("a difference", lambda: weights(8) - parts(), gone="Sub"),
    holds("open sizes", lambda: parts(None) + weights(8)),
    refuses("a part without a kernel", lambda: norm(parts(second=False), 7), because="before the view"),
    refuses("another reader", read_twice, because="2 consumers"),
    refuses("a factor per place", lambda: parts(None) * weights(2, 2, 8), because="larger"),
]
