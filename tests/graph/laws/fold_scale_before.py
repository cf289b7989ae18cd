"""Rows for `fold_scale_before`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import conv, depthwise, image, transposed
from tests.graph.table import feed, holds, refuses, unknown, weights


def volume(x):
    """A convolution of a volume, channels first."""
    return conv(x, window=(2, 2, 2), data_format="NCDHW")


TABLE = [
    holds("a factor per channel", lambda: conv(image() * weights(4)), gone="Mul"),
    holds("one factor, SAME padding and a stride", lambda: conv(image() * 1.7, padding="SAME", strides=2), gone="Mul"),
    holds("groups", lambda: conv(image() * weights(4), groups=2, out=6), gone="Mul"),
    holds("channels first", lambda: conv(image("NCHW") * weights(4, 1, 1), data_format="NCHW"), gone="Mul"),
    holds("depthwise with a multiplier", lambda: depthwise(image() * weights(4), multiplier=2), gone="Mul"),
    holds("a volume", lambda: conv(feed(None, 5, 5, 5, 2) * weights(2), window=(3, 3, 3)), gone="Mul"),
    holds("a matrix", lambda: tf.matmul(feed(None, 5) * weights(5), weights(5, 3)), gone="Mul"),
    holds(
        "a transposed matrix", lambda: tf.matmul(feed(2, 5) * weights(5), weights(3, 5), transpose_b=True), gone="Mul"
    ),
    holds("a quotient per channel", lambda: conv(image() / weights(4, low=0.5)), gone="RealDiv"),
    holds("transposed", lambda: transposed(feed(2, 6, 6, 4) * weights(4)), gone="Mul"),
    holds("other channels than are made", lambda: transposed(feed(2, 6, 6, 3) * weights(3)), gone="Mul"),
    *(
        holds(
            kind,
            lambda kind=kind: tf.matmul(feed(2, 5, dtype=kind) * weights(5, dtype=kind), weights(5, 3, dtype=kind)),
        )
        for kind in ("float64", "float16", "bfloat16")
    ),
    holds("a volume, channels first", lambda: volume(feed(None, 2, 3, 4, 4) * weights(2, 1, 1, 1)), gone="Mul"),
    refuses(
        "data of unknown shape",
        lambda: tf.nn.conv2d(unknown(image()) * weights(4), weights(3, 3, 4, 2), 1, "VALID"),
        because="not known",
    ),
    refuses("a row of one axis", lambda: tf.matmul(feed(5) * weights(1, 5), weights(5, 3)), because="per channel"),
    refuses("an image that is stretched", lambda: conv(feed(None, 6, 6, 1) * weights(4)), because="per channel"),
    refuses("data of fewer axes", lambda: conv(feed(6, 6, 4) * weights(1, 1, 1, 4)), because="not known"),
    refuses(
        "integers, which wrap around",
        lambda: tf.matmul(feed(2, 2, dtype="int32") * 2**30, tf.constant([[8, 1], [1, 8]])),
        because="int32",
    ),
    refuses("a division by zero", lambda: conv(image() / tf.constant([1.0, 0, 1, 1])), because="not be finite"),
    refuses("a factor per row", lambda: tf.matmul(feed(5, 5) * weights(5, 1), weights(5, 3)), because="per channel"),
    refuses(
        "data that are stretched", lambda: tf.matmul(feed(2, 1) * weights(5), weights(5, 3)), because="per channel"
    ),
    refuses(
        "transposed data",
        lambda: tf.matmul(feed(5, 5) * weights(5), weights(5, 3), transpose_a=True),
        because="one axis",
    ),
    refuses(
        "weights that overflow",
        lambda: tf.matmul(feed(2, 2) * 1e30, tf.constant(1e30, shape=[2, 2])),
        because="not be finite",
    ),
    refuses(
        "data of an unknown rank",
        lambda: tf.raw_ops.MatMul(a=tf.squeeze(feed(None, 1, 5)) * weights(5), b=weights(5, 3)),
        because="per channel",
    ),
]
