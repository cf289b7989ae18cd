"""Rows for `cancel_reshapes_around_norms`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def norm(x, scale=1.0, offset=0.0, *, rows=None, training=True, form="NCHW", back=None):
    """A layer normalization as Keras 2 writes it, before the gain and the bias."""
    shape = tf.shape(x)
    count = tf.reduce_prod(shape[:-1])
    made = raw.FusedBatchNormV3(
        x=tf.reshape(x, [1, count, x.shape[-1], 1] if rows is None else rows),
        scale=tf.fill([count], scale) if isinstance(scale, float) else scale,
        offset=tf.fill([count], offset) if isinstance(scale, float) else tf.zeros_like(scale),
        mean=[] if training else tf.zeros([count]),
        variance=[] if training else tf.ones([count]),
        epsilon=2e-3,
        data_format=form,
        is_training=training,
    )[0]
    return tf.reshape(made, shape if back is None else back)


def sequences(*shape):
    """Sequences of vectors of 5 elements."""
    return feed(*(shape or (None, 3)), 5)


TABLE = [
    holds("of Keras 2", lambda: norm(sequences()), gone=("FusedBatchNormV3", "Reshape")),
    holds("of vectors", lambda: norm(feed(None, 5)), gone="FusedBatchNormV3"),
    holds("of a known shape", lambda: norm(feed(2, 5)), gone="FusedBatchNormV3"),
    holds("of sequences of open length", lambda: norm(sequences(None, None)), gone="FusedBatchNormV3"),
    holds("a constant shape", lambda: norm(sequences(), back=[-1, 3, 5]), gone="Reshape"),
    holds("constant scales", lambda: norm(feed(2, 5), tf.ones([2])), gone="FusedBatchNormV3"),
    holds("with a gain and a bias", lambda: norm(sequences()) * weights(5) + weights(5), gone="FusedBatchNormV3"),
    refuses("another scale", lambda: norm(sequences(), 2.0), because="the scale is not 1"),
    refuses("another offset", lambda: norm(sequences(), offset=1.0), because="the offset not 0"),
    refuses("of a model in use", lambda: norm(feed(2, 5), training=False), because="not those of rows"),
    refuses("other rows", lambda: norm(feed(2, 2, 5), tf.ones([5]), rows=[1, 5, 4, 1]), because="along the last axis"),
    refuses("several records", lambda: norm(feed(2, 5), tf.ones([1]), rows=[2, 1, 5, 1]), because="the last axis"),
    refuses("another shape", lambda: norm(sequences(), back=[-1, 5]), because="another shape"),
]
