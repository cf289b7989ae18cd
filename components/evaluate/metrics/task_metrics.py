"""Metrics of a record from its predictions and its label; metrics from counts of classes and from histograms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import metric_table
from tfopt.metric_table import BINARY, CLASSIFICATION, MULTI_LABEL, OTHER, REGRESSION
from tfopt.reports.evaluation_report import RocPoint

Array = NDArray[Any]

SMALLEST = float(np.finfo(np.float32).eps)  # probabilities are clipped to it, as the loss of 0 is infinite
LARGEST = 1e30  # beyond it a float32 sum of a batch would overflow
LARGEST_LOGIT = 17.0  # the logit of the float32 nearest to 1 is 16.6
MOST_CLASSES = 100  # the confusion matrix grows with the square, and a larger one is not readable
HIT, PREDICTED, ACTUAL = range(3)  # the counts of a class that precision and recall are computed from


@dataclass(frozen=True)
class Scoring:
    """The metrics of an evaluation, determined once from the baseline's first batch."""

    task: str  # classification, binary, multi_label, regression, or other without metrics of its own
    is_logits: bool  # True if the output needs a softmax or sigmoid to be a probability
    width: int  # number of output values of a record
    top_k: int  # the k of top-k accuracy
    threshold: float = 0.5  # probability above which a label is predicted, for one output and for several labels
    one_hot: bool = False  # True if the label of a classification has one value for each class

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that are means over records, in the order of `values`."""
        return [row.name.format(k=self.top_k) for row in self._means]

    @property
    def shares(self) -> list[str]:
        """The names of the metrics that are shares of records: each record has 0 or 1."""
        return [row.name.format(k=self.top_k) for row in self._means if row.kind == "share"]

    @property
    def names(self) -> list[str]:
        """The names of all metrics of the task."""
        prefix = "macro_" if self.counted_classes > 1 else ""
        counted = [f"{prefix}{name}" for name in metric_table.COUNTED if self.counted_classes]
        return [*self.metrics, *counted, *(metric_table.AREAS if self.has_auc else ())]

    @property
    def _means(self) -> list[metric_table.MetricRow]:
        has_top_k = self.width > self.top_k
        return [row for row in metric_table.mean_metrics(self.task) if has_top_k or "{k}" not in row.name]

    @property
    def class_count(self) -> int:
        """The number of classes that exclude each other; 0 if the task has none."""
        return max(self.width, 2) if self.task in (BINARY, CLASSIFICATION) else 0

    @property
    def has_classes(self) -> bool:
        """True if a record belongs to classes."""
        return self.task not in (REGRESSION, OTHER)

    @property
    def output_kind(self) -> str:
        """The kind of the output: ``numbers``, ``logits`` or ``probabilities``."""
        return "logits" if self.is_logits else "probabilities" if self.has_classes else "numbers"

    @property
    def counted_classes(self) -> int:
        """The number of classes with precision, recall and F1: the positive one of two, or all; 0 for too many."""
        if not self.has_classes or self.width > MOST_CLASSES:
            return 0
        return 1 if self.has_auc else self.width

    @property
    def has_auc(self) -> bool:
        """True if there are two classes, and so an AUC."""
        return self.task == BINARY or (self.task == CLASSIFICATION and self.width == 2)

    def values(self, predictions: Array, labels: Array) -> NDArray[np.float64]:
        """Compute the metrics of each record, ``[records, metrics]``, from predictions ``[records, width]``."""
        if self.task == OTHER:
            return np.zeros((len(labels), 0))
        predictions = predictions.astype(np.float64)
        columns = [np.asarray(COLUMNS[row.name](self, predictions, labels), np.float64) for row in self._means]
        return np.asarray(np.minimum(np.stack(columns, 1), LARGEST))

    def targets(self, labels: Array) -> Array:
        """Return the class of each record, ``[records, 1]``, from one-hot labels; other labels as they are."""
        return labels.argmax(1)[:, None] if self.one_hot else labels

    def probabilities(self, predictions: Array) -> Array:
        """Return the probabilities of classes or labels; the numbers as they are if the task has no classes."""
        if not self.is_logits:
            return predictions
        if self.task == CLASSIFICATION:
            powers = np.exp(predictions - predictions.max(1, keepdims=True))
            return np.asarray(powers / powers.sum(1, keepdims=True))
        return np.asarray(1 / (1 + np.exp(-np.clip(predictions, -700, 700))))

    def classes(self, predictions: Array) -> Array:
        """Return the predicted class of each record, or 0 and 1 for each label, for a task with classes."""
        if self.task == CLASSIFICATION:
            return np.asarray(predictions.argmax(1))
        return self.positive(predictions)[:, 0] if self.task == BINARY else self.positive(predictions)

    def positive(self, predictions: Array) -> Array:
        """Return 1 for each output above the threshold, else 0."""
        limit = float(logit(np.asarray(self.threshold))) if self.is_logits else self.threshold
        return (predictions > limit).astype(np.int64)

    def members(self, classes: Array) -> NDArray[np.bool_]:
        """Return which counted classes records belong to, ``[records, classes]``, from labels or predicted classes."""
        if self.task == MULTI_LABEL:
            return np.equal(classes, 1)
        return np.asarray(classes.reshape(-1, 1) == ([1] if self.has_auc else np.arange(self.width)))

    def bins(self, predictions: Array, count: int) -> NDArray[np.int64]:
        """Return the histogram bin of each record: equal steps of the logit, so fine near probabilities of 0 and 1."""
        scores = predictions.astype(np.float64)
        if not self.is_logits:
            value = logit(scores[:, -1])
        else:
            value = scores[:, 0] if self.task == BINARY else scores[:, 1] - scores[:, 0]
        return np.clip((value + LARGEST_LOGIT) * (count / (2 * LARGEST_LOGIT)), 0, count - 1).astype(np.int64)


def looks_like_logits(predictions: Array, task: str) -> bool:
    """Return True if predictions are no probabilities: outside 0..1, or rows that do not sum to 1 (int8 is 5 % off)."""
    if task in (REGRESSION, OTHER):
        return False
    inside = bool(((predictions >= 0) & (predictions <= 1)).all())
    return not inside or (task == CLASSIFICATION and bool((np.abs(predictions.sum(1) - 1) > 0.05).any()))


def _log_loss(scoring: Scoring, predictions: Array, labels: Array) -> Array:
    probabilities = scoring.probabilities(predictions)
    if scoring.task == CLASSIFICATION:
        of_label = np.take_along_axis(probabilities, labels, 1)
    else:
        of_label = np.where(labels == 1, probabilities, 1 - probabilities)
    return np.asarray(-np.log(np.clip(of_label, SMALLEST, 1 - SMALLEST)).mean(1))


def _rank(predictions: Array, labels: Array) -> Array:
    """Return the number of classes before the label; equal values rank by class, or a coarse int8 output would win."""
    own = predictions[np.arange(len(labels)), labels][:, None]
    lower = np.arange(predictions.shape[1]) < labels[:, None]
    return np.asarray(((predictions > own) | ((predictions == own) & lower)).sum(1))


# The metrics that are means over records, from predictions ``[records, width]`` and labels ``[records, labels]``, for
# each record: 0 or 1 for a share.
COLUMNS: dict[str, Callable[[Scoring, Array, Array], Any]] = {
    "accuracy": lambda scoring, predictions, labels: scoring.classes(predictions) == labels[:, 0],
    "top_{k}_accuracy": lambda scoring, predictions, labels: _rank(predictions, labels[:, 0]) < scoring.top_k,
    "label_accuracy": lambda scoring, predictions, labels: (scoring.positive(predictions) == labels).mean(1),
    "exact_match_accuracy": lambda scoring, predictions, labels: (scoring.positive(predictions) == labels).all(1),
    "log_loss": _log_loss,
    "mean_absolute_error": lambda _, predictions, labels: np.abs(predictions - labels).mean(1),
    "mean_squared_error": lambda _, *both: np.minimum(np.square(np.subtract(*both)), LARGEST).mean(1),
}


def logit(probability: Array) -> Array:
    """Return the logit, infinite for 0 and 1."""
    with np.errstate(divide="ignore"):
        inside = np.clip(probability, 0, 1)
        return np.asarray(np.log(inside) - np.log1p(-inside))


def confusion(labels: Array, classes: Array, width: int) -> NDArray[np.int64]:
    """Count records by true and predicted class, ``[width, width]``; empty for more than `MOST_CLASSES`.

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    if width > MOST_CLASSES:
        return np.zeros((0, 0), np.int64)
    return np.bincount(labels * width + classes, minlength=width * width).reshape(width, width)


def class_metrics(counts: Array) -> dict[str, Array]:
    """Compute precision, recall and F1 from counts ``[…, 3, classes]``; of several classes, their mean (``macro_``).

    Classes that neither occur nor are predicted are left out of the mean; without any class left it is NaN.

    >>> {name: float(value) for name, value in class_metrics(np.array([[2], [4], [2]])).items()}
    {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666}
    """
    hit, predicted, actual = (counts[..., kind, :].astype(np.float64) for kind in (HIT, PREDICTED, ACTUAL))
    occurring = (predicted + actual > 0).sum(-1)
    prefix = "macro_" if counts.shape[-1] > 1 else ""
    denominators = {"precision": predicted, "recall": actual, "f1": (predicted + actual) / 2}
    with np.errstate(invalid="ignore"):
        return {
            prefix + name: (hit / np.maximum(denominators[name], 0.5)).sum(-1) / occurring
            for name in metric_table.COUNTED
        }


def auc(histogram: Array) -> tuple[Array, Array]:
    """Compute the area under the ROC curve and its largest error from counts ``[…, class, bin]``; NaN for one class.

    A pair of records in one bin counts half, as a tie does. The true order can change this by at most another half.
    """
    negative, positive = (histogram[..., side, :].astype(np.float64) for side in (0, 1))
    pairs = positive.sum(-1) * negative.sum(-1)
    tied = (positive * negative).sum(-1) / 2
    won = (positive * (np.cumsum(negative, -1) - negative)).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (won + tied) / pairs, tied / pairs


def average_precision(histogram: Array) -> tuple[Array, Array]:
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
