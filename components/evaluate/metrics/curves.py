"""Curves of a two-class problem from a histogram of the logit: ROC and precision-recall, and the areas under them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.evaluate.metrics.task_metrics import LARGEST_LOGIT
from tfopt.reports.evaluation_report import RocPoint

Array = NDArray[Any]


def auc(histogram: NDArray[Any]) -> tuple[Array, Array]:
    """Compute the area under the ROC curve and its largest error from counts ``[…, class, bin]``; NaN for one class.

    A pair of records in one bin counts half, as a tie does. The true order can change this by at most another half.
    """
    negative, positive = (histogram[..., side, :].astype(np.float64) for side in (0, 1))
    pairs = positive.sum(-1) * negative.sum(-1)
    tied = (positive * negative).sum(-1) / 2
    won = (positive * (np.cumsum(negative, -1) - negative)).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (won + tied) / pairs, tied / pairs


def average_precision(histogram: NDArray[Any]) -> tuple[Array, Array]:
    """Compute the area under the precision-recall curve and its largest error from counts ``[…, class, bin]``.

    The area is the average precision: the mean, over the positive records, of the precision at their threshold. Records
    in one bin have one threshold. It is NaN without positive records. The error is the difference to the best and the
    worst order of the records in each bin; the worst has a sum of ``1 / n``, approximated by a logarithm.
    """
    negative, positive = (histogram[..., side, ::-1].astype(np.float64) for side in (0, 1))
    hits, above = np.cumsum(positive, -1), np.cumsum(positive + negative, -1)
    errors = above - hits  # negative records above the threshold
    with np.errstate(invalid="ignore", divide="ignore"):
        tied = np.where(above > 0, positive * hits / above, 0).sum(-1) / hits[..., -1]
        best = np.where(hits > 0, positive * hits / (above - negative), 0).sum(-1) / hits[..., -1]
        growth = np.log((above + 0.5) / (above - positive + 0.5))
        worst = (positive - errors * growth).sum(-1) / hits[..., -1]
        return tied, np.maximum(best - tied, tied - worst)


def roc(histogram: NDArray[np.int64]) -> list[RocPoint]:
    """Return the ROC curve from counts ``[class, bin]``, the highest threshold first; empty without both classes.

    Each point is exact for its threshold, the probability at an edge of the histogram's bins. Edges at which nothing
    changes are left out.
    """
    totals = histogram.sum(1)
    if not totals.all():
        return []
    bins = histogram.shape[1]
    counts = [(bins, np.zeros(2, np.int64))]
    counts += [(edge, histogram[:, edge:].sum(1)) for edge in reversed(range(bins)) if histogram[:, edge].any()]
    return [
        RocPoint(
            threshold=_edge_probability(edge, bins),
            false_positive_rate=float(above[0] / totals[0]),
            true_positive_rate=float(above[1] / totals[1]),
        )
        for edge, above in counts
    ]


def _edge_probability(edge: int, bins: int) -> float:
    """Return the probability at a bin's lower edge; the outermost bins reach to 0 and 1."""
    if edge in (0, bins):
        return edge / bins
    return float(1 / (1 + np.exp(LARGEST_LOGIT - edge * 2 * LARGEST_LOGIT / bins)))
