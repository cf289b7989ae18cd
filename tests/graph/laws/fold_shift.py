"""Rows for `fold_shift`."""

import tensorflow as tf

from tests.graph.laws.fold_batch_norm import biased, conv, depthwise, image, volume
from tests.graph.laws.fold_scale import dense
from tests.graph.table import feed, holds, refuses, weights

TABLE = [
    holds("a bias more", lambda: biased(conv(image())) + weights(4), gone="AddV2"),
    holds("a bias of its own", lambda: conv(image()) + weights(1, 1, 1, 4), gone="AddV2"),
    holds("the constant first", lambda: weights(4) + depthwise(image())),
    holds("two BiasAdd", lambda: biased(biased(conv(image())))),
    holds("one number", lambda: conv(image()) + weights()),
    holds("less", lambda: biased(conv(image())) - weights(4), gone="Sub"),
    holds("subtracted from it", lambda: weights(4) - biased(conv(image())), gone="Sub"),
    holds("subtracted from it, without a bias", lambda: weights(5) - dense()),
    holds("a difference of an addition", lambda: (dense() + weights(5)) - weights(5), fires=2, gone="Sub"),
    holds("a difference from a difference", lambda: weights(5) - tf.subtract(dense(), weights(5)), fires=2, gone="Sub"),
    holds("after a difference", lambda: tf.nn.bias_add(dense() - weights(5), weights(5)), fires=2),
    holds("channels first", lambda: biased(conv(image("NCHW"), data_format="NCHW"), layout="NCHW") + weights(4, 1, 1)),
    holds("a volume", lambda: conv(feed(None, 4, 4, 4, 2), window=(2, 2, 2)) + weights(4)),
    *(
        holds(dtype, lambda d=dtype: dense(dtype=d) + weights(5, dtype=d))
        for dtype in ("float64", "float16", "bfloat16")
    ),
    holds("a volume, channels first", lambda: volume() + weights(4, 1, 1, 1), gone="AddV2"),
    holds("a volume's two biases", lambda: biased(biased(volume(), layout="NCDHW"), layout="NCDHW")),
    refuses(
        "what varies over the image", lambda: biased(conv(image())) + weights(4, 1), because="one number per channel"
    ),
    refuses(
        "a bias along the width of channels first",
        lambda: tf.nn.bias_add(
            biased(conv(feed(None, 2, 6, 4), data_format="NCHW", padding="SAME"), layout="NCHW"), weights(4)
        ),
        because="one number per channel",
    ),
    refuses("more axes", lambda: dense() + weights(2, 1, 5), because="one number per channel"),
    refuses(
        "the one channel made several", lambda: conv(image(), out=1) + weights(3), because="one number per channel"
    ),
    refuses(
        "integers", lambda: tf.matmul(feed(2, 2, dtype="int32"), tf.constant([[1, 2], [3, 4]])) + 3, because="int32"
    ),
    refuses(
        "an axis more that makes the shape larger",
        lambda: tf.matmul(feed(5, 3), weights(3, 5)) + weights(1, 5, 1),
        because="one number per channel",
    ),
]
