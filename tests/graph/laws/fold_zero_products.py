"""Rows for `fold_zero_products`."""

import numpy as np

from tests.graph.table import feed, holds, refuses

TABLE = [
    holds("floats", lambda: feed(2, 3) * 0.0, gone="Mul"),
    holds("a larger shape", lambda: np.zeros([2, 1], "float32") * feed(1, 3), gone="Mul"),
    refuses("another number", lambda: feed(3) * 0.5, because="does not absorb"),
    refuses("an open size", lambda: feed(None, 3) * 0.0, because="not known"),
]
