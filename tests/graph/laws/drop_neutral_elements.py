"""Rows for `drop_neutral_elements`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses

TABLE = [
    holds("times 1", lambda: feed(None, 3) * 1.0, gone="Mul"),
    holds("plus 0", lambda: tf.zeros([3]) + feed(None, 3), gone="AddV2"),
    holds("minus 0", lambda: feed(None, 3) - 0.0, gone="Sub"),
    holds("by 1", lambda: feed(None, 3) / np.ones([1, 3], "float32"), gone="RealDiv"),
    holds("a bias of nothing", lambda: tf.nn.bias_add(feed(None, 3), tf.zeros([3])), gone="BiasAdd"),
    holds("NaN and infinity", lambda: (feed(3) / 0.0 - feed(3, name="z") / 0.0) * 1.0),
    holds("a bias of other channels", lambda: tf.nn.bias_add(feed(None, 3, 2), tf.zeros([3]), data_format="NCHW")),
    refuses("a bias of something", lambda: tf.nn.bias_add(feed(None, 3), tf.ones([3])), because="not neutral"),
    refuses("by 2", lambda: feed(None, 3) / 2.0, because="not neutral"),
    refuses("to the power of 2", lambda: feed(None, 3) ** 2.0, because="not neutral"),
    refuses("less 1", lambda: feed(None, 3) - 1.0, because="not neutral"),
    refuses("plus 1", lambda: feed(None, 3) + 1.0, because="not neutral"),
    refuses("nothing at all", lambda: feed(1) * np.ones([0], "float32"), because="not neutral"),
    holds("integers", lambda: feed(3, dtype="int32") * 1 + 0, fires=2),
    holds("plus 0, then squared", lambda: 1.0 / tf.square(feed(3) + 0.0), gone="AddV2"),
    holds("a divisor less 0", lambda: 1.0 / (feed(3) - 0.0), gone="Sub"),
    holds("a divisor plus -0", lambda: 1.0 / (feed(3) + np.float32(-0.0)), gone="AddV2"),
    refuses("a divisor plus 0", lambda: 1.0 / (feed(3) + 0.0), because="the sign matters"),
    refuses("less -0", lambda: tf.math.rsqrt(tf.nn.relu(feed(3) - np.float32(-0.0))), because="the sign matters"),
    refuses("a complex product", lambda: feed(3, dtype="complex64") * 1, because="complex infinity"),
    refuses("0 minus", lambda: 0.0 - feed(3), because="not a constant"),
    refuses("times 0", lambda: feed(3) * 0.0, because="not neutral"),
    refuses("another number", lambda: feed(3) * 1.5, because="not neutral"),
    refuses("one that is another", lambda: feed(3) + np.float32([0, 0, 1]), because="not neutral"),
    holds("a larger shape", lambda: feed(1, 3) * np.ones([2, 3], "float32"), gone="Mul"),
    holds("more axes", lambda: np.zeros([1, 1, 3], "float32") + feed(3), gone="AddV2"),
    holds("an open size, which the constant settles", lambda: feed(None, 3) - np.zeros([2, 3], "float32"), gone="Sub"),
    holds("to the power of 1", lambda: feed(None, 3) ** 1.0, gone="Pow"),
    holds("and true", lambda: tf.logical_and(True, feed(3, dtype="bool")), gone="LogicalAnd"),
    holds("or false", lambda: tf.logical_or(feed(1, dtype="bool"), [False, False]), gone="LogicalOr"),
    refuses("and false", lambda: tf.logical_and(feed(3, dtype="bool"), False), because="not neutral"),
    refuses("1 by", lambda: 1.0 / feed(3), because="not a constant"),
    refuses("more axes of an open size", lambda: feed(None) * np.ones([2, 1], "float32"), because="shape larger"),
    refuses("text", lambda: tf.raw_ops.Add(x=tf.as_string(feed(3)), y=""), because="not neutral"),
]
