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
    holds("integers", lambda: feed(3, dtype="int32") * 1 + 0, fires=2),
    refuses("0 minus", lambda: 0.0 - feed(3), because="not a constant"),
    refuses("times 0", lambda: feed(3) * 0.0, because="NaN where x is NaN or infinite"),
    refuses("another number", lambda: feed(3) * 1.5, because="not neutral"),
    refuses("a larger shape", lambda: feed(1, 3) * np.ones([2, 3], "float32"), because="make the shape larger"),
    refuses("more axes", lambda: feed(3) + np.zeros([1, 1, 3], "float32"), because="make the shape larger"),
    refuses("an open size", lambda: feed(None, 3) + np.zeros([2, 3], "float32"), because="make the shape larger"),
]
