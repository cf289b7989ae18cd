"""Rows for `fold_batch_norm`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses, weights

GLOBAL = "BatchNormWithGlobalNormalization"
CHANNELS = {"NHWC": [None, 6, 6, 4], "NCHW": [None, 4, 6, 6]}


def norm(
    x, channels=4, *, op="V3", layout="NHWC", dtype="float32", training=False, epsilon=0.01, variance=None, after=True
):
    """A batch norm with moved statistics and scales of both signs."""
    gamma, beta, mean = (weights(channels, dtype=dtype) for _ in range(3))
    variance = weights(channels, low=0.2, dtype=dtype) if variance is None else tf.constant(variance, dtype)
    if op == "global":
        old = tf.compat.v1.GraphDef()
        old.versions.producer = 8  # the last that knows it
        tf.graph_util.import_graph_def(old)
        return tf.raw_ops.BatchNormWithGlobalNormalization(
            t=x, m=mean, v=variance, beta=beta, gamma=gamma, variance_epsilon=epsilon, scale_after_normalization=after
        )
    kind = {"V1": tf.raw_ops.FusedBatchNorm, "V2": tf.raw_ops.FusedBatchNormV2, "V3": tf.raw_ops.FusedBatchNormV3}[op]
    return kind(
        x=x, scale=gamma, offset=beta, mean=mean, variance=variance,
        epsilon=epsilon, data_format=layout, is_training=training,
    )[0]  # fmt: skip


def conv(x, *, window=(3, 3), out=4, dtype="float32", groups=1, **kwargs):
    """A convolution."""
    channels = x.shape[1] if str(kwargs.get("data_format", "")).startswith("NC") else x.shape[-1]
    kernel = weights(*window, channels // groups, out, dtype=dtype)
    if len(window) == 3:
        return tf.nn.conv3d(x, kernel, [1] * 5, "SAME", **kwargs)
    return tf.nn.conv2d(x, kernel, **{"strides": 1, "padding": "VALID", **kwargs})


def depthwise(x, *, multiplier=1, **kwargs):
    """A depthwise convolution."""
    kernel = weights(3, 3, x.shape[-1], multiplier)
    return tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME", **kwargs)


def transposed(x):
    """A transposed convolution of twice the size."""
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[2, 12, 12, 4],
        filter=weights(3, 3, 4, x.shape[-1]),
        out_backprop=x,
        strides=[1, 2, 2, 1],
        padding="SAME",
    )


def biased(x, *, layout="NHWC", dtype="float32"):
    """A bias after it."""
    return tf.nn.bias_add(x, weights(4, dtype=dtype), data_format=layout)


def image(layout="NHWC", dtype="float32"):
    """An image of four channels."""
    return feed(*CHANNELS[layout], dtype=dtype)


def volume():
    """A convolution of a volume, channels first: of as many rows as there are channels."""
    return conv(feed(None, 2, 3, 4, 4), window=(2, 2, 2), data_format="NCDHW")


def half():
    """Weights in half precision, statistics in single."""
    return norm(conv(image(dtype="float16"), dtype="float16"), epsilon=0.1)


TABLE = [
    *(
        holds(
            f"FusedBatchNorm {op}",
            lambda op=op: norm(conv(image()), op=op),
            gone="FusedBatchNorm" + op.removeprefix("V1"),
        )
        for op in ("V1", "V2", "V3")
    ),
    *(
        holds(f"{GLOBAL}, {name}", lambda build=build, kw=kw: norm(build(image()), op="global", **kw), gone=GLOBAL)
        for name, build, kw in (
            ("alone", conv, {}),
            ("with a bias between", lambda x: biased(conv(x)), {}),
            ("not scaled afterwards", conv, {"after": False}),
            ("depthwise", depthwise, {}),
        )
    ),
    holds("a bias between", lambda: norm(biased(conv(image())))),
    holds("an AddV2 between", lambda: norm(conv(image()) + weights(1, 1, 1, 4))),
    holds("a Sub between", lambda: norm(conv(image()) - weights(4))),
    holds("strides, SAME padding and dilation", lambda: norm(conv(image(), padding="SAME", dilations=2))),
    holds("strides", lambda: norm(conv(image(), padding="SAME", strides=2))),
    holds("groups", lambda: norm(conv(image(), groups=2))),
    holds(
        "channels first", lambda: norm(biased(conv(image("NCHW"), data_format="NCHW"), layout="NCHW"), layout="NCHW")
    ),
    holds("depthwise", lambda: norm(depthwise(image()))),
    holds("depthwise with a multiplier", lambda: norm(depthwise(image(), multiplier=2), 8)),
    holds("transposed", lambda: norm(transposed(feed(2, 6, 6, 4)))),
    holds("a volume", lambda: norm(conv(feed(None, 5, 5, 5, 2), window=(3, 3, 3)), layout="NDHWC")),
    holds("a volume, channels first", lambda: norm(volume(), layout="NCDHW")),
    holds("with a bias between", lambda: norm(biased(volume(), layout="NCDHW"), layout="NCDHW")),
    holds("with a sum between", lambda: norm(volume() + weights(4, 1, 1, 1), layout="NCDHW"), gone="AddV2"),
    refuses("a volume of another layout", lambda: norm(volume(), layout="NDHWC"), because="normalizes axis 4"),
    holds("half precision", half),
    holds("a chain of three", lambda: norm(norm(norm(conv(image())))), fires=3),
    holds("the output itself", lambda: tf.nn.relu(norm(conv(image())))),
    refuses("training mode", lambda: norm(conv(image()), training=True), because="training mode"),
    refuses("another layout", lambda: norm(conv(feed(None, 6, 6, 4)), layout="NCHW"), because="normalizes axis 1"),
    refuses("no number under the root", lambda: norm(conv(image()), variance=[1, -2, 1, 1]), because="not be finite"),
    refuses(
        "an overflow",
        lambda: norm(conv(image(dtype="float16"), dtype="float16"), epsilon=1e-12, variance=np.zeros(4)),
        because="not be finite in float16",
    ),
    refuses(
        "a shift that varies over the image", lambda: norm(conv(image()) + weights(4, 1)), because="one number per"
    ),
]
