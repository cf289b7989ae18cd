"""Rows for `fold_batch_norm_before`."""

import numpy as np
import tensorflow as tf

from tests.graph.laws.fold_batch_norm import GLOBAL, conv, depthwise, image, norm
from tests.graph.table import feed, holds, refuses, unknown, weights


def centred(x):
    """A batch norm that adds nothing: mean and beta are 0."""
    zeros, gamma, variance = tf.constant([0.0] * 4), weights(4), weights(4, low=0.2)
    return tf.raw_ops.FusedBatchNormV3(
        x=x, scale=gamma, offset=zeros, mean=zeros, variance=variance, epsilon=0.01, is_training=False
    )[0]


def read_twice():
    """A batch norm that two convolutions read, as in a dense block."""
    x = norm(image())
    return conv(x) + conv(x)


def volume_first(layout="NCDHW"):
    """A volume with channels first, of as many columns as there are channels."""
    normed = norm(feed(None, 2, 3, 3, 2), 2, layout=layout)
    return tf.nn.conv3d(normed, weights(2, 2, 2, 2, 3), [1] * 5, "VALID", "NCDHW")


def half(scale, offset):
    """A convolution of half precision after a batch norm whose statistics are single."""
    normed = tf.raw_ops.FusedBatchNormV3(
        x=image(dtype="float16"), scale=[scale] * 4, offset=[offset] * 4, mean=[0.0] * 4, variance=[1.0] * 4,
        is_training=False,
    )[0]  # fmt: skip
    return conv(normed, dtype="float16")


TABLE = [
    *(holds(f"FusedBatchNorm {op}", lambda op=op: conv(norm(image(), op=op))) for op in ("V1", "V2", "V3")),
    holds(GLOBAL, lambda: conv(norm(image(), op="global")), gone=GLOBAL),
    holds("a stride", lambda: conv(norm(image()), strides=2), gone="FusedBatchNormV3"),
    holds("a window of 1, SAME", lambda: conv(norm(image()), window=(1, 1), padding="SAME"), gone="FusedBatchNormV3"),
    holds("nothing added, SAME", lambda: conv(centred(image()), padding="SAME"), gone=("FusedBatchNormV3", "BiasAdd")),
    holds("dilated", lambda: conv(norm(image()), dilations=2), gone="FusedBatchNormV3"),
    holds("groups", lambda: conv(norm(image()), groups=2, out=6), gone="FusedBatchNormV3"),
    holds("channels first", lambda: conv(norm(image("NCHW"), layout="NCHW"), data_format="NCHW")),
    holds(
        "depthwise with a multiplier",
        lambda: tf.nn.depthwise_conv2d(norm(image()), weights(3, 3, 4, 2), [1, 1, 1, 1], "VALID"),
    ),
    holds(
        "a volume",
        lambda: tf.nn.conv3d(norm(feed(None, 5, 5, 5, 2), 2, layout="NDHWC"), weights(2, 2, 2, 2, 3), [1] * 5, "VALID"),
    ),
    holds("a volume, channels first", volume_first, gone="FusedBatchNormV3"),
    refuses("what moves too far for half precision", lambda: half(1.0, 1e5), because="not be finite"),
    refuses("what is scaled too far for half precision", lambda: half(1e6, 0.0), because="not be finite"),
    refuses("a volume of another layout", lambda: volume_first("NDHWC"), because="normalizes axis 4"),
    holds("data whose shape only the reader determines", lambda: conv(norm(unknown(image())))),
    holds("half precision", lambda: conv(norm(image(dtype="float16"), epsilon=0.1), dtype="float16")),
    holds("one on each side", lambda: norm(conv(norm(image()))), gone="FusedBatchNorm"),
    refuses("a padding", lambda: conv(norm(image()), padding="SAME"), because="padding"),
    refuses("a depthwise padding", lambda: depthwise(norm(image())), because="padding"),
    refuses("training mode", lambda: conv(norm(image(), training=True)), because="training mode"),
    refuses("another layout", lambda: conv(norm(feed(None, 4, 6, 4), layout="NCHW")), because="normalizes axis 1"),
    refuses("two that read it", read_twice, because="2 consumers"),
    refuses(
        "an overflow",
        lambda: conv(norm(image(dtype="float16"), epsilon=1e-12, variance=np.zeros(4)), dtype="float16"),
        because="not be finite in float16",
    ),
]
