"""Rows for `fold_scale`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import biased, conv, depthwise, image, transposed, volume
from tests.graph.table import feed, holds, refuses, weights


def dense(*, transpose_b=False, dtype="float32"):
    """A product with a matrix."""
    return tf.matmul(feed(None, 3, dtype=dtype), weights(*((5, 3) if transpose_b else (3, 5)), dtype=dtype), transpose_b=transpose_b)  # fmt: skip  # noqa: E501


TABLE = [
    holds("a convolution", lambda: conv(image()) * weights(4), gone=("Mul", "BiasAdd")),
    holds("the constant first", lambda: weights(1, 1, 1, 4) * conv(image())),
    holds("a bias between", lambda: biased(conv(image())) * weights(4)),
    holds("a difference between", lambda: (conv(image()) - weights(4)) * weights(4), gone="Sub"),
    holds("a difference between, and a quotient", lambda: (dense() - weights(5)) / weights(5, low=0.5), gone="Sub"),
    holds("one number", lambda: conv(image()) * weights()),
    holds("a quotient", lambda: conv(image()) / weights(4, low=0.5), gone="RealDiv"),
    holds("channels first", lambda: conv(image("NCHW"), data_format="NCHW") * weights(4, 1, 1)),
    holds("depthwise", lambda: depthwise(image(), multiplier=2) * weights(8)),
    holds("transposed", lambda: transposed(feed(2, 6, 6, 4)) * weights(4)),
    holds("a matrix", lambda: dense() * weights(5)),
    holds("a transposed matrix", lambda: dense(transpose_b=True) * weights(1, 5)),
    *(
        holds(dtype, lambda d=dtype: dense(dtype=d) * weights(5, dtype=d))
        for dtype in ("float64", "float16", "bfloat16")
    ),
    holds("a chain", lambda: dense() * weights(5) * weights() * weights(1), fires=3),
    holds("a volume, channels first", lambda: volume() * weights(4, 1, 1, 1), gone="Mul"),
    refuses(
        "the depth of a volume",
        lambda: conv(feed(None, 2, 4, 3, 3), window=(2, 2, 2), data_format="NCDHW") * weights(4, 1, 1),
        because="one number per channel",
    ),
    refuses(
        "a factor that varies over the image", lambda: conv(image()) * weights(4, 4), because="one number per channel"
    ),
    refuses(
        "the channels of another layout",
        lambda: conv(image("NCHW"), data_format="NCHW") * weights(4),
        because="one number per channel",
    ),
    refuses("a factor of more axes", lambda: dense() * weights(2, 1, 5), because="one number per channel"),
    refuses(
        "a broadcast of the one channel", lambda: conv(image(), out=1) * weights(3), because="one number per channel"
    ),
    holds("a difference the other way", lambda: (weights(5) - dense()) * weights(5), fires=0),
    refuses(
        "a reader of the sign of zero", lambda: 1.0 / (dense() * weights(5)), because="zeros would have the other sign"
    ),
    refuses("a division by zero", lambda: conv(image()) / tf.constant([1.0, 0, 1, 1]), because="not be finite"),
    refuses(
        "integers", lambda: tf.matmul(feed(2, 2, dtype="int32"), tf.constant([[1, 2], [3, 4]])) * 3, because="int32"
    ),
    refuses(
        "an axis more that makes the shape larger",
        lambda: tf.matmul(feed(5, 3), weights(3, 5)) * weights(1, 5, 1),
        because="one number per channel",
    ),
    holds(
        "a transposed volume",
        lambda: (
            tf.nn.conv3d_transpose(feed(2, 2, 2, 2, 3), weights(2, 2, 2, 4, 3), [2, 4, 4, 4, 4], 2)
            * weights(1, 1, 1, 1, 4)
        ),
        gone="Mul",
    ),
]
