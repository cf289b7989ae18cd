"""Rows for `fold_exact_quotients`."""

import numpy as np
import tensorflow as tf

from tests.graph.table import feed, holds, refuses


def by(divisor, kind="float32"):
    """A quotient of many numbers."""
    return feed(999, dtype=kind) / tf.constant(divisor, kind)


TABLE = [
    holds("256", lambda: by(256), gone="RealDiv"),
    holds("a negative fraction", lambda: by(-0.125), gone="RealDiv"),
    holds("one for each", lambda: feed(None, 3) / np.float32([2, -4, 0.5]), gone="RealDiv"),
    holds("the largest that has an inverse", lambda: by(2.0**126), gone="RealDiv"),
    holds("the smallest that has an inverse", lambda: by(2.0**-126), gone="RealDiv"),
    *(holds(kind, lambda kind=kind: by(4, kind), gone="RealDiv") for kind in ("float64", "float16", "bfloat16")),
    refuses("255", lambda: by(255), because="would be rounded"),
    refuses("one that is none", lambda: feed(None, 3) / np.float32([2, 3, 4]), because="would be rounded"),
    refuses("zero", lambda: by(0), because="would be rounded"),
    refuses("infinity", lambda: by(np.inf), because="would be rounded"),
    refuses("an inverse that loses digits", lambda: by(2.0**127), because="all its digits"),
    refuses("one that is taken for zero", lambda: by(2.0**-127), because="all its digits"),
    refuses("half precision has less room", lambda: by(2.0**15, "float16"), because="all its digits"),
    refuses("integers", lambda: tf.raw_ops.Div(x=feed(3, dtype="int32"), y=[2, 2, 2]), because="int32"),
]
