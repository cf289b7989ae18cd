"""Rows for `drop_left_neutral`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses

TABLE = [
    holds("0 minus", lambda: 0.0 - feed(None, 3), gone="Sub"),
    holds("1 by", lambda: 1.0 / feed(None, 3), gone="RealDiv"),
    holds("zeros of a shape", lambda: np.zeros([1, 3], "float32") - feed(None, 3), gone="Sub"),
    holds("integers", lambda: 0 - feed(3, dtype="int32"), gone="Sub"),
    holds("infinity and NaN", lambda: 1.0 / (feed(3) / 0.0 - feed(3, name="z") / 0.0)),
    holds("by zero", lambda: 1.0 / tf.maximum(feed(9), 0.0)),
    *(
        holds(f"1 by {kind}", lambda kind=kind: tf.constant(1, kind) / feed(99, dtype=kind))
        for kind in ("float64", "float16", "bfloat16")
    ),
    holds("-0 minus a divisor", lambda: 2.0 / (np.float32(-0.0) - feed(3)), gone="Sub"),
    refuses("0 minus a divisor", lambda: 2.0 / (0.0 - feed(3)), because="the sign matters"),
    refuses("another number", lambda: 2.0 / feed(3), because="not 1"),
    refuses("1 minus", lambda: 1.0 - feed(3), because="not 0"),
    refuses("some zeros", lambda: tf.constant([0.0, 1.0, 0.0]) - feed(3), because="not 0"),
    refuses("0 by", lambda: 0.0 / feed(3), because="not 1"),
    refuses("a larger shape", lambda: np.zeros([2, 3], "float32") - feed(1, 3), because="make the shape larger"),
    refuses("an open size", lambda: np.zeros([2, 3], "float32") - feed(None, 3), because="make the shape larger"),
    refuses("no sign", lambda: tf.constant(0, "uint8") - feed(3, dtype="uint8"), because="no Neg of uint8"),
    refuses("from the right", lambda: feed(3) - 0.0, because="not a constant"),
]
