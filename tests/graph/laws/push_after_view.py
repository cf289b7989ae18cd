"""Rows for `push_after_view`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import GLOBAL, conv, image, norm
from tests.graph.table import feed, holds, refuses, unknown, weights


def dense(x, units=3):
    """A product with a matrix, of what is laid out as rows."""
    return tf.reshape(x, [-1, 6 * 6 * 4]) @ weights(6 * 6 * 4, units)


def conv1d(x, **kwargs):
    """A convolution of one axis."""
    return conv(tf.expand_dims(x, 1), window=(1, 3), **kwargs)


def padded(x):
    """A convolution with zeros around the data."""
    return conv(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]))


def blocks(x, edge=0):
    """Return the first operations of a dilated convolution."""
    return tf.raw_ops.SpaceToBatchND(input=x, block_shape=[2, 2], paddings=[[edge, edge], [edge, edge]])


def joined(x):
    """Blocks put together before a convolution."""
    return conv(tf.raw_ops.BatchToSpaceND(input=x, block_shape=[2, 2], crops=[[0, 0], [0, 0]]))


def rows(volume):
    """A product with a matrix, of volumes laid out as rows."""
    return tf.reshape(volume, [-1, 24]) @ weights(24, 2)


def half(scale, offset):
    """Rows of half precision after a batch norm whose statistics are single."""
    scaled = tf.raw_ops.FusedBatchNormV3(
        x=feed(2, 1, 1, 2, dtype="float16"), scale=[scale] * 2, offset=[offset] * 2, mean=[0.0] * 2,
        variance=[1.0] * 2, epsilon=0.01, is_training=False,
    )[0]  # fmt: skip
    return tf.reshape(scaled, [2, 2]) @ tf.constant(0.01, "float16", [2, 3])


EDGES = [[0, 0], [0, 0], [1, 1], [0, 0]]
TABLE = [
    holds("a product before a convolution of one axis", lambda: conv1d(feed(None, 6, 4) * weights(4))),
    holds("a sum", lambda: conv1d(feed(None, 6, 4) + weights(4))),
    holds("a difference", lambda: conv1d(feed(None, 6, 4) - weights(1, 4)), gone="Sub"),
    holds("a difference the other way", lambda: conv1d(weights(4) - feed(None, 6, 4)), gone="Sub"),
    holds("a quotient, SAME", lambda: conv1d(feed(None, 6, 4) / weights(4, low=0.5), padding="SAME"), gone="RealDiv"),
    holds("both", lambda: conv1d(feed(None, 6, 4) * weights(4) + weights(4))),
    holds("a batch norm before rows", lambda: dense(norm(image())), gone="FusedBatchNormV3"),
    holds("the old batch norm before rows", lambda: dense(norm(image(), op="global")), gone=GLOBAL),
    holds("a number for each element", lambda: dense(image() * weights(6, 6, 4))),
    holds("a product before zeros", lambda: padded(image() * weights(4))),
    holds("a product before blocks", lambda: conv(blocks(image() * weights(4), 1), window=(2, 2))),
    holds("a batch norm before blocks without zeros", lambda: conv(blocks(norm(image())), window=(2, 2))),
    holds(
        "before a transposition",
        lambda: conv(tf.transpose(feed(None, 4, 6, 6) * weights(4, 1, 1), [0, 2, 3, 1])),
    ),
    holds("before a Squeeze of two axes", lambda: tf.squeeze(feed(5, 1, 1, 4) * weights(4), [1, 2]) @ weights(4, 3)),
    holds("one number, zeros among those added", lambda: padded(image() * weights())),
    holds("nothing added before zeros", lambda: padded(image() + tf.zeros([4]))),
    holds("before a Squeeze", lambda: tf.squeeze(feed(5, 1, 4) * weights(4), [1]) @ weights(4, 3)),
    holds(
        "an axis more, counted from the end",
        lambda: conv(tf.expand_dims(feed(None, 6, 4) * weights(4), -3), window=(1, 3)),
    ),
    holds(
        "before a Squeeze that counts from the end",
        lambda: tf.squeeze(feed(5, 1, 4) * weights(4), [-2]) @ weights(4, 3),
    ),
    holds("a batch norm of a volume before rows", lambda: rows(norm(feed(None, 2, 2, 2, 3), 3, layout="NDHWC"))),
    holds("the same with channels first", lambda: rows(norm(feed(None, 3, 2, 2, 2), 3, layout="NCDHW"))),
    holds("joined blocks", lambda: joined(feed(4, 6, 6, 4) * weights(4))),
    refuses("zeros by number", lambda: conv1d(feed(None, 6, 4) + weights(4), padding=EDGES), because="padding"),
    holds(
        "rows whose shape only the reader determines",
        lambda: tf.raw_ops.MatMul(a=tf.reshape(feed(2, 3) * weights(3), unknown([2, 3])), b=weights(3, 2)),
    ),
    refuses("a factor that half precision does not hold", lambda: half(1e5, 0.0), because="not be finite"),
    refuses("a summand that half precision does not hold", lambda: half(1.0, 1e5), because="not be finite"),
    refuses(
        "a kernel on both sides",
        lambda: dense(conv(image(), padding="SAME") * weights(4)),
        because="the kernel before it",
    ),
    refuses("a sum before zeros", lambda: padded(image() + weights(4)), because="zeros of the Pad are not shifted"),
    refuses(
        "a sum before blocks with zeros",
        lambda: conv(blocks(image() + weights(4), 1), window=(2, 2)),
        because="zeros of the SpaceToBatchND are not shifted",
    ),
    refuses("a padding", lambda: conv1d(feed(None, 6, 4) + weights(4), padding="SAME"), because="padding"),
    refuses(
        "a Squeeze of unknown axes",
        lambda: tf.raw_ops.MatMul(a=tf.squeeze(feed(None, 1, 4) * weights(4)), b=weights(4, 3)),
        because="not known",
    ),
    refuses(
        "channels that are padded",
        lambda: tf.pad(feed(2, 4) * weights(4), [[0, 0], [1, 0]]) @ weights(5, 3),
        because="Pad moves",
    ),
    refuses("training mode", lambda: dense(norm(image(), training=True)), because="training mode"),
    refuses("a number per place", lambda: conv1d(feed(None, 6, 4) * weights(6, 1)), because="one number per channel"),
    refuses(
        "numbers along the blocks",
        lambda: conv(blocks(image() * weights(6, 1)), window=(2, 2)),
        because="SpaceToBatchND moves",
    ),
    refuses("data that are stretched", lambda: conv1d(feed(None, 6, 1) * weights(4)), because="make the shape larger"),
    refuses("one of each batch", lambda: dense(feed(2, 6, 6, 4) * weights(2, 1, 1, 1)), because="batch"),
    refuses(
        "an overflow",
        lambda: tf.squeeze(feed(2, 1, 2) * 1e30, [1]) @ tf.constant(1e30, shape=[2, 2]),
        because="may not be finite",
    ),
    refuses(
        "channels that are not one axis",
        lambda: tf.matmul(tf.squeeze(feed(2, 1, 2) * weights(2), [1]), weights(2, 2), transpose_a=True),
        because="one axis",
    ),
]
