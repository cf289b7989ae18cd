"""Rows for `push_before_view`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import GLOBAL, conv, depthwise, image, norm, transposed
from tests.graph.laws.fold_scale import dense
from tests.graph.table import feed, holds, refuses, unknown, weights


def conv1d(**kwargs):
    """A convolution of one axis, as TensorFlow makes it of one of two."""
    return tf.squeeze(conv(tf.expand_dims(feed(None, 6, 4), 1), window=(1, 3), **kwargs), [1])


def dilated(x=None, crops=((1, 1), (2, 1))):
    """A dilated depthwise convolution, as TensorFlow makes it of one that is not."""
    blocks = tf.raw_ops.SpaceToBatchND(input=image() if x is None else x, block_shape=[2, 2], paddings=[[2, 2], [2, 2]])
    return tf.raw_ops.BatchToSpaceND(input=depthwise(blocks), block_shape=[2, 2], crops=crops)


def sequence():
    """A matrix product of each step of a sequence."""
    return tf.reshape(tf.reshape(feed(None, 3), [-1, 3]) @ weights(3, 4), [-1, 2, 4])


def of_some_size():
    """Nothing is known of what is squeezed."""
    return tf.squeeze(tf.nn.conv2d(feed(None, None, None, 2), weights(1, 1, 2, 4), 1, "SAME"))


def branching():
    """A convolution that something else reads, on the other side of its view."""
    made = conv(tf.expand_dims(feed(None, 6, 4), 1), window=(1, 3))
    return tf.squeeze(made, [1]) * weights(4) + tf.reduce_sum(made)


def one_axis(crops):
    """A convolution between blocks of one axis of two."""
    x = tf.raw_ops.SpaceToBatchND(input=feed(2, 6, 6, 4), block_shape=[1, 2], paddings=[[0, 0], [0, 0]])
    return tf.raw_ops.BatchToSpaceND(input=conv(x, padding="SAME"), block_shape=[1, 2], crops=crops)


def named():
    """A convolution that has a name."""
    return tf.squeeze(tf.nn.conv2d(feed(None, 1, 6, 4), weights(1, 3, 4, 4), 1, "VALID", name="conv"), [1])


def waited_for():
    """A convolution that another node waits for."""
    flow = named() * weights(4)
    with tf.control_dependencies([flow.graph.get_tensor_by_name("conv:0")]):
        return tf.concat([flow, tf.identity(weights(1, 4, 4))], 0)


def of_unknown_sizes():
    """Reshape a convolution with unknown numbers of rows and columns into pairs."""
    x = feed(None, None, None, 4)
    return tf.reshape(conv(x, padding="SAME"), tf.stack([tf.shape(x)[0], -1, 2]))


def first(x):
    """Channels first."""
    return tf.transpose(x, [0, 3, 1, 2])


def turned():
    """A volume, channels first."""
    return tf.transpose(conv(feed(None, 3, 3, 3, 2), window=(2, 2, 2)), [0, 4, 1, 2, 3])


TABLE = [
    holds("a product after a convolution of one axis", lambda: conv1d() * weights(4)),
    holds("a quotient", lambda: conv1d() / weights(4, low=0.5), gone="RealDiv"),
    holds("a sum", lambda: weights(1, 4) + conv1d()),
    holds("a difference", lambda: conv1d() - weights(4), gone="Sub"),
    holds("a difference the other way", lambda: weights(4) - conv1d(), gone="Sub"),
    holds("one number", lambda: conv1d() * weights()),
    holds("a bias", lambda: tf.nn.bias_add(conv1d(), weights(4)), gone="BiasAdd"),
    holds("one after the other", lambda: (conv1d() * weights(4)) + weights(4), fires=2),
    holds("squeezed axes without names", lambda: tf.squeeze(conv(feed(2, 3, 3, 4))) * weights(4)),
    holds("after depthwise blocks", lambda: norm(dilated()), gone="FusedBatchNormV3"),
    holds("the old batch norm after blocks", lambda: norm(dilated(), op="global"), gone=GLOBAL),
    holds("a sum after blocks", lambda: dilated() + weights(4)),
    holds("after a transposition", lambda: first(conv(image())) * weights(4, 1, 1)),
    holds("a batch norm of another layout", lambda: norm(first(conv(image())), layout="NCHW")),
    holds("a bias of another layout", lambda: tf.nn.bias_add(first(conv(image())), weights(4), data_format="NCHW")),
    holds("a sequence", lambda: tf.nn.bias_add(sequence(), weights(4)), gone="BiasAdd"),
    holds(
        "a batch norm of a matrix product",
        lambda: norm(tf.reshape(dense(), [-1, 1, 1, 5]), 5),
        gone="FusedBatchNormV3",
    ),
    holds("after a transposed convolution", lambda: first(transposed(feed(2, 6, 6, 4))) * weights(4, 1, 1)),
    holds("axes counted from the end", lambda: tf.transpose(conv(image()), [0, -1, 1, 2]) * weights(4, 1, 1)),
    holds("numbers along an axis without blocks", lambda: one_axis([[0, 0], [0, 0]]) * weights(6, 1, 1)),
    holds("one number of unknown sizes", lambda: of_unknown_sizes() * weights()),
    holds("an axis more", lambda: tf.expand_dims(dense(), 1) * weights(5)),
    holds("one number for all of a block", lambda: tf.reshape(dense(), [-1, 5, 1]) * weights(5, 1)),
    holds("two views", lambda: tf.squeeze(tf.expand_dims(conv1d(), -1), [-1]) * weights(4), fires=2 + 1),
    holds("half precision", lambda: tf.expand_dims(dense(dtype="float16"), 1) * weights(5, dtype="float16")),
    holds("a batch norm of a volume of another layout", lambda: norm(turned(), layout="NCDHW")),
    holds("a bias of it", lambda: tf.nn.bias_add(turned(), weights(4), data_format="NCDHW")),
    holds("a batch norm of a volume", lambda: norm(tf.reshape(dense(), [-1, 1, 1, 1, 5]), 5, layout="NDHWC")),
    refuses(
        "rows of unknown shape",
        lambda: tf.reshape(tf.reshape(dense(), unknown([2, 5])), [-1, 5, 1]) * weights(5, 1),
        because="around the Reshape",
    ),
    refuses("training mode", lambda: norm(dilated(), training=True), because="training mode"),
    refuses("numbers along the blocks", lambda: dilated() * weights(7, 1), because="BatchToSpaceND moves"),
    refuses(
        "no kernel", lambda: tf.squeeze(tf.exp(feed(None, 1, 4)), [1]) * weights(4), because="no kernel before the view"
    ),
    refuses(
        "a kernel that is computed",
        lambda: tf.expand_dims(feed(2, 3) @ feed(3, 4, name="k"), 0) * weights(4),
        because="no constant kernel",
    ),
    refuses("a convolution that is read elsewhere", branching, because="read elsewhere"),
    refuses("a larger shape", lambda: conv1d() * weights(2, 1, 4), because="make the shape larger"),
    refuses("an axis more", lambda: conv1d() * weights(1, 1, 1, 4), because="make the shape larger"),
    refuses("an unknown shape", lambda: of_some_size() * weights(4), because="not known"),
    refuses("zeros that are added", lambda: tf.pad(dense(), [[0, 0], [1, 1]]) * weights(7), because="adds elements"),
    refuses("a Reshape across the batch", lambda: tf.reshape(dense(), [5, -1]) * weights(5, 1), because="batch"),
    refuses(
        "an overflow", lambda: tf.expand_dims(feed(2, 2) @ tf.constant(1e30, shape=[2, 2]), 1) * 1e30, because="finite"
    ),
    refuses("numbers along a cropped axis", lambda: one_axis([[1, 0], [0, 0]]) * weights(5, 1, 1), because="moves"),
    refuses("one of each batch of blocks", lambda: one_axis([[0, 0], [0, 0]]) * weights(2, 1, 1, 1), because="moves"),
    refuses(
        "a convolution that is an output", lambda: named() * weights(4), because="read elsewhere", outputs=["conv"]
    ),
    refuses("a convolution that is waited for", waited_for, because="read elsewhere"),
    refuses("two data", lambda: tf.expand_dims(dense() + feed(2, 5, name="z"), 1) * weights(5), because="no kernel"),
    refuses("what is not linear", lambda: tf.expand_dims(tf.exp(dense()), 1) * weights(5), because="no kernel"),
    refuses("numbers of unknown sizes", lambda: of_unknown_sizes() * weights(2), because="batch"),
    refuses(
        "rows of another batch", lambda: tf.reshape(feed(6, 3) @ weights(3, 4), [3, 8]) * weights(8), because="batch"
    ),
    refuses(
        "a larger constant",
        lambda: tf.reshape(feed(None, 3) @ weights(3, 8), [-1, 2, 4]) * weights(2, 1),
        because="would be larger",
    ),
    refuses(
        "integers",
        lambda: tf.expand_dims(tf.matmul(feed(2, 2, dtype="int32"), tf.constant([[1, 2], [3, 4]])), 1) * 3,
        because="no constant kernel",
    ),
]
