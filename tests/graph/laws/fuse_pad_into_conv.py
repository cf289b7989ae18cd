"""Rows for `fuse_pad_into_conv`."""

import tensorflow as tf

from tests.graph.table import feed, holds, refuses, unknown, weights


def conv(
    x, height, width=None, *, window=3, stride=1, padding="VALID", mode="CONSTANT", value=0, depthwise=False, **kw
):
    """A padded convolution."""
    padded = tf.pad(x, [(0, 0), height, width or height, (0, 0)], mode, value)
    if depthwise:
        return tf.nn.depthwise_conv2d(padded, weights(window, window, 4, 1), [1, stride, stride, 1], padding, **kw)
    return tf.nn.conv2d(padded, weights(window, window, 4, 4), stride, padding, **kw)


def volume():
    """Three axes."""
    x = tf.pad(feed(None, 4, 5, 6, 2), [(0, 0), (1, 1), (1, 1), (0, 1), (0, 0)])
    return tf.nn.conv3d(x, weights(3, 3, 3, 2, 4), [1, 1, 1, 2, 1], "VALID")


def first(paddings=((0, 0), (0, 0), (0, 1), (1, 1))):
    """Channels first; strided along the height, of even size, and not along the width."""
    x = tf.pad(feed(None, 4, 8, 9), paddings)
    return tf.nn.conv2d(x, weights(3, 3, 4, 2), [1, 1, 2, 1], "VALID", data_format="NCHW")


def around_channels():
    """A channel more, of zeros; oneDNN takes such a Pad for one around the image, but no PadV2."""
    x = tf.pad(feed(None, 8, 8, 3), [(0, 0), (1, 1), (1, 1), (0, 1)], constant_values=tf.constant(0.0))
    return tf.nn.conv2d(x, weights(3, 3, 4, 4), 1, "VALID")


def around(x, kernel, padding="VALID"):
    """A convolution with a zero on each side, and whatever kernel."""
    return tf.nn.conv2d(tf.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), kernel, 1, padding)


def image(height=8, width=8):
    """An image of four channels."""
    return feed(None, height, width, 4)


TABLE = [
    holds("stride 1 and an unknown size", lambda: conv(image(None, None), (1, 1)), gone="Pad"),
    holds("stride 2 and an even size: one zero at the end", lambda: conv(image(), (0, 1), stride=2), gone="Pad"),
    holds("stride 2 and an odd size", lambda: conv(image(7, 9), (1, 1), stride=2), gone="Pad"),
    holds("another padding for each axis", lambda: conv(image(7, 8), (1, 1), (0, 1), stride=2), gone="Pad"),
    holds("an even window", lambda: conv(image(None, None), (1, 2), window=4), gone="Pad"),
    holds("dilated", lambda: conv(image(), (2, 2), dilations=2), gone="Pad"),
    holds("a stride beyond the window", lambda: conv(image(7, 7), (0, 0), window=1, stride=3), gone="Pad"),
    holds("depthwise", lambda: conv(image(), (0, 1), stride=2, depthwise=True), gone="Pad"),
    holds("PadV2 with a zero", lambda: conv(image(), (1, 1), value=tf.constant(0.0)), gone=("Pad", "PadV2")),
    holds("a volume", volume, gone="Pad"),
    holds("a stride that leaves some out", lambda: conv(image(), (0, 0), window=1, stride=3), gone="Pad"),
    holds("channels first", first, gone="Pad"),
    refuses("channels first, zeros of the other axis", lambda: first([(0, 0), (0, 0), (1, 1), (0, 1)]), because="adds"),
    refuses("zeros around the channels", around_channels, because="SAME adds"),
    refuses("a window of unknown size", lambda: around(image(), feed(None, None, 4, 4, name="k")), because="not known"),
    refuses("a window of unknown shape", lambda: around(image(), unknown(weights(3, 3, 4, 4))), because="not known"),
    holds("data whose shape only the reader determines", lambda: around(unknown(image()), weights(3, 3, 4, 4))),
    refuses(
        "zeros by number on top",
        lambda: around(image(), weights(3, 3, 4, 4), [(0, 0), (1, 1), (1, 1), (0, 0)]),
        because="own padding is EXPLICIT",
    ),
    refuses("zeros at the wrong end", lambda: conv(image(), (1, 0), stride=2), because="SAME adds"),
    refuses("more zeros", lambda: conv(image(), (3, 3), window=7, stride=2), because="SAME adds"),
    refuses("an unknown size and a stride", lambda: conv(image(None), (0, 1), stride=2), because="not known"),
    refuses("SAME on top", lambda: conv(image(), (1, 1), padding="SAME"), because="own padding is SAME"),
    refuses("reflections", lambda: conv(image(), (1, 1), mode="REFLECT"), because="not zero"),
    refuses("ones", lambda: conv(image(), (1, 1), value=tf.constant(1.0)), because="not zero"),
]
