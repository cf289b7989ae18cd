"""Which class was taken for which, counted exactly; and the ROC curve where there are two."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics import REACH

MOST_CLASSES = 100  # the matrix grows with the square, and beyond this nobody reads it

Array = NDArray[Any]


def confusion(labels: Array, classes: Array, width: int) -> NDArray[np.int64]:
    """Count records by true and predicted class, ``[width, width]``; of more than `MOST_CLASSES` nothing is counted.

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    if width > MOST_CLASSES:
        return np.zeros((0, 0), np.int64)
    return np.bincount(labels * width + classes, minlength=width * width).reshape(width, width)


def roc(histogram: NDArray[np.int64]) -> list[dict[str, float]]:
    """The ROC curve from counts ``[class, bin]``, the strictest threshold first; none without both classes.

    Each point is exact for its threshold, a probability at an edge of the histogram's bins. Edges at which nothing
    changes are left out.
    """
    totals = histogram.sum(1)
    if not totals.all():
        return []
    bins = histogram.shape[1]
    found = [(bins, np.zeros(2, np.int64))]
    found += [(edge, histogram[:, edge:].sum(1)) for edge in reversed(range(bins)) if histogram[:, edge].any()]
    return [
        {
            "threshold": _probability(edge, bins),
            "false_positive_rate": float(above[0] / totals[0]),
            "true_positive_rate": float(above[1] / totals[1]),
        }
        for edge, above in found
    ]


def _probability(edge: int, bins: int) -> float:
    """The probability at a bin's lower edge; the outermost bins reach to 0 and 1."""
    if edge in (0, bins):
        return edge / bins
    return float(1 / (1 + np.exp(REACH - edge * 2 * REACH / bins)))
