"""Rows for `fold_shift_before`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import conv, image
from tests.graph.table import feed, holds, refuses, weights


def depthwise(x, padding="VALID"):
    """A depthwise convolution with two outputs for each input."""
    return tf.nn.depthwise_conv2d(x, weights(3, 3, 4, 2), [1, 1, 1, 1], padding)


def volume(x, layout="NCDHW"):
    """A convolution of a volume without a padding."""
    return tf.nn.conv3d(x, weights(2, 2, 2, 2, 3), [1] * 5, "VALID", layout)


TABLE = [
    holds("a number per channel", lambda: conv(image() + weights(4)), gone="AddV2"),
    holds("one number, with a stride", lambda: conv(image() + 0.7, strides=2), gone="AddV2"),
    holds("a window of 1, SAME", lambda: conv(image() + weights(4), window=(1, 1), padding="SAME"), gone="AddV2"),
    holds("subtracted", lambda: conv(image() - weights(4)), gone="Sub"),
    holds("a bias", lambda: conv(tf.nn.bias_add(image(), weights(4)))),
    holds("groups", lambda: conv(image() + weights(4), groups=2, out=6), gone="AddV2"),
    holds("channels first", lambda: conv(image("NCHW") + weights(4, 1, 1), data_format="NCHW"), gone="AddV2"),
    holds(
        "a bias of channels first",
        lambda: conv(tf.nn.bias_add(image("NCHW"), weights(4), data_format="NCHW"), data_format="NCHW"),
    ),
    holds("depthwise", lambda: depthwise(image() + weights(4)), gone="AddV2"),
    holds("a matrix", lambda: tf.matmul(feed(None, 5) + weights(5), weights(5, 3)), gone="AddV2"),
    holds(
        "a transposed matrix", lambda: tf.matmul(feed(2, 5) + weights(5), weights(3, 5), transpose_b=True), gone="AddV2"
    ),
    holds("a volume", lambda: volume(feed(None, 3, 3, 3, 2) + weights(2), "NDHWC"), gone="AddV2"),
    holds("a volume, channels first", lambda: volume(feed(None, 2, 3, 4, 4) + weights(2, 1, 1, 1)), gone="AddV2"),
    holds(
        "a bias of a volume, channels first",
        lambda: volume(tf.nn.bias_add(feed(None, 2, 3, 4, 4), weights(2), data_format="NCDHW")),
    ),
    refuses(
        "zeros by number around a window of 1",
        lambda: conv(image() + weights(4), window=(1, 1), padding=[[0, 0], [1, 1], [1, 1], [0, 0]]),
        because="padding",
    ),
    refuses(
        "a window of 1 in a plane",
        lambda: tf.nn.conv3d(feed(2, 3, 3, 3, 2) + weights(2), weights(1, 1, 3, 2, 2), [1] * 5, "SAME"),
        because="padding",
    ),
    refuses("data of fewer axes", lambda: conv(feed(6, 6, 4) + weights(1, 1, 1, 4)), because="not known"),
    refuses(
        "integers, which wrap around",
        lambda: tf.matmul(feed(2, 2, dtype="int32") + 2**30, tf.constant([[8, 1], [1, 8]])),
        because="int32",
    ),
    refuses("a padding", lambda: conv(image() + weights(4), padding="SAME"), because="padding"),
    refuses("the same depthwise", lambda: depthwise(image() + weights(4), "SAME"), because="padding"),
    refuses(
        "a bias of another layout",
        lambda: conv(tf.nn.bias_add(feed(None, 4, 6, 4), weights(4), data_format="NCHW")),
        because="one number per channel",
    ),
    refuses("data that are subtracted", lambda: conv(weights(4) - image()), because="not a constant"),
    refuses("a number per row", lambda: tf.matmul(feed(5, 5) + weights(5, 1), weights(5, 3)), because="per channel"),
    refuses(
        "transposed data", lambda: tf.matmul(feed(5, 5) + 1.5, weights(5, 3), transpose_a=True), because="one axis"
    ),
    refuses(
        "an overflow", lambda: tf.matmul(feed(2, 2) + 1e30, tf.constant(1e30, shape=[2, 2])), because="not be finite"
    ),
    refuses(
        "data of an unknown rank",
        lambda: tf.raw_ops.MatMul(a=tf.squeeze(feed(None, 1, 5)) + weights(5), b=weights(5, 3)),
        because="per channel",
    ),
]
