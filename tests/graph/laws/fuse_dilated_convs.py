"""Rows for `fuse_dilated_convs`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

raw = tf.raw_ops


def dilated(
    size, paddings, crops=(0, 0), *, block=2, window=3, back=None, depthwise=False, stride=1, padding="VALID", bias=None
):
    """A convolution between SpaceToBatchND and BatchToSpaceND."""
    x = feed(None, size, size, 4)
    y = raw.SpaceToBatchND(input=x, block_shape=[block] * 2, paddings=[paddings] * 2)
    if depthwise:
        y = tf.nn.depthwise_conv2d(y, weights(window, window, 4, 2), [1, stride, stride, 1], padding)
    else:
        y = tf.nn.conv2d(y, weights(window, window, 4, 3), stride, padding)
    y = y if bias is None else bias(y)
    return raw.BatchToSpaceND(input=y, block_shape=[back or block] * 2, crops=[crops] * 2)


def line(size, paddings, crops=(0, 0), axis=1, window=1, bias=None):
    """A convolution of one axis."""
    y = raw.SpaceToBatchND(input=feed(None, size, 4), block_shape=[2], paddings=[paddings])
    y = tf.nn.conv2d(tf.expand_dims(y, axis), weights(window, 3, 4, 5), 1, "VALID")
    y = tf.squeeze(y, [axis])
    return raw.BatchToSpaceND(input=y if bias is None else bias(y), block_shape=[2], crops=[crops])


GONE = ("SpaceToBatchND", "BatchToSpaceND")
TABLE = [
    holds("SAME", lambda: dilated(8, (2, 2)), gone=GONE),
    holds("SAME of an odd size, with crops", lambda: dilated(9, (2, 3), (0, 1)), gone=GONE),
    holds("VALID", lambda: dilated(8, (0, 0)), gone=GONE),
    holds("VALID of an odd size, with crops", lambda: dilated(9, (0, 1), (0, 1)), gone=GONE),
    holds("blocks of 3", lambda: dilated(10, (3, 5), (0, 2), block=3), gone=GONE),
    holds("a window of an even size", lambda: dilated(8, (1, 1), window=2), gone=GONE),
    holds("one axis", lambda: line(8, (2, 2)), gone=GONE),
    holds("one axis, with crops", lambda: line(9, (2, 3), (0, 1)), gone=GONE),
    holds("a bias in between", lambda: dilated(8, (2, 2), bias=lambda y: tf.nn.bias_add(y, weights(3))), gone=GONE),
    holds("a sum in between, with crops", lambda: dilated(9, (2, 3), (0, 1), bias=lambda y: weights(3) + y), gone=GONE),
    holds("one axis, with a bias", lambda: line(8, (2, 2), bias=lambda y: tf.nn.bias_add(y, weights(5))), gone=GONE),
    refuses("a bias at each place", lambda: dilated(8, (2, 2), bias=lambda y: y + weights(4, 4, 3)), because="channel"),
    refuses("depthwise", lambda: dilated(8, (2, 2), depthwise=True), because=""),
    refuses("an open size", lambda: dilated(None, (2, 2)), because="not known"),
    refuses("a causal convolution", lambda: dilated(8, (4, 0)), because="neither"),
    refuses("first results cut off", lambda: dilated(8, (4, 0), (2, 0)), because="cut off"),
    refuses("other blocks", lambda: dilated(8, (2, 2), back=1), because="differ"),
    refuses("strides", lambda: dilated(9, (3, 4), stride=2, block=2), because="strides"),
    refuses("a padding within", lambda: dilated(8, (2, 2), padding="SAME"), because="of its own"),
]
