"""Metrics of a record from its predictions and its label, confusion matrices, and the ROC curve with its area."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.evaluation_report import RocPoint

Array = NDArray[Any]

SMALLEST = float(np.finfo(np.float32).eps)  # probabilities are clipped to it, as the loss of 0 is infinite
LARGEST = 1e30  # beyond it a float32 sum of a batch would overflow
LARGEST_LOGIT = 17.0  # the logit of the float32 nearest to 1 is 16.6
HIGHER_IS_BETTER = ("accuracy", "auc")  # endings of metric names
MOST_CLASSES = 100  # the confusion matrix grows with the square, and a larger one is not readable


@dataclass(frozen=True)
class Scoring:
    """The metrics of an evaluation, determined once from the baseline's first batch.

    Attributes:
        task: ``classification``, ``binary`` or ``regression``.
        is_logits: True if the output needs a softmax or sigmoid to be a probability.
        width: Number of output values of a record.
        top_k: The k of top-k accuracy.
    """

    task: str
    is_logits: bool
    width: int
    top_k: int

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that are means over records, in the order of `values`."""
        if self.task == "regression":
            return ["mean_absolute_error", "mean_squared_error"]
        return ["accuracy", *([f"top_{self.top_k}_accuracy"] if self._has_top_k else []), "log_loss"]

    @property
    def _has_top_k(self) -> bool:
        return self.task == "classification" and self.width > self.top_k

    @property
    def class_count(self) -> int:
        """The number of classes of the output; 0 in a regression."""
        return 0 if self.task == "regression" else max(self.width, 2)

    @property
    def has_auc(self) -> bool:
        """True if there are two classes, and so an AUC."""
        return self.task == "binary" or (self.task == "classification" and self.width == 2)

    def values(self, predictions: Array, labels: Array) -> NDArray[np.float64]:
        """Compute the metrics of each record, ``[records, metrics]``, from predictions ``[records, width]``."""
        predictions = predictions.astype(np.float64)
        if self.task == "regression":
            error = predictions - labels
            columns = [np.abs(error).mean(1), np.minimum(np.square(error), LARGEST).mean(1)]
            return np.asarray(np.minimum(np.stack(columns, 1), LARGEST))
        labels = labels[:, 0]
        if self.task == "binary":
            probability = _sigmoid(predictions[:, 0]) if self.is_logits else predictions[:, 0]
            loss = _log_loss(np.where(labels == 1, probability, 1 - probability))
            return np.stack([(self.classes(predictions) == labels), loss], 1)
        probabilities = _softmax(predictions) if self.is_logits else predictions
        loss = _log_loss(probabilities[np.arange(len(labels)), labels])
        columns = [self.classes(predictions) == labels]
        if self._has_top_k:
            columns.append(_rank(predictions, labels) < self.top_k)
        return np.stack([*columns, loss], 1)

    def classes(self, predictions: Array) -> Array | None:
        """Return the predicted class of each record; None in a regression."""
        if self.task == "regression":
            return None
        if self.task == "binary":
            return (predictions[:, 0] > (0.0 if self.is_logits else 0.5)).astype(np.int64)
        return np.asarray(predictions.argmax(1))

    def bins(self, predictions: Array, count: int) -> NDArray[np.int64]:
        """Return the histogram bin of each record: equal steps of the logit, so fine near probabilities of 0 and 1."""
        if self.task == "binary":
            score = predictions[:, 0].astype(np.float64)
            logit = score if self.is_logits else _logit(score)
        else:
            pair = predictions.astype(np.float64)
            logit = pair[:, 1] - pair[:, 0] if self.is_logits else _logit(pair[:, 1])
        return np.clip((logit + LARGEST_LOGIT) * (count / (2 * LARGEST_LOGIT)), 0, count - 1).astype(np.int64)


def looks_like_logits(predictions: Array, task: str) -> bool:
    """Return True if predictions are no probabilities: outside 0..1, or rows that do not sum to 1 (int8 is 5 % off)."""
    if task == "regression":
        return False
    inside = bool(((predictions >= 0) & (predictions <= 1)).all())
    return not inside or (task == "classification" and bool((np.abs(predictions.sum(1) - 1) > 0.05).any()))


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


def _log_loss(label_probability: Array) -> Array:
    return np.asarray(-np.log(np.clip(label_probability, SMALLEST, 1 - SMALLEST)))


def _rank(predictions: Array, labels: Array) -> Array:
    """Return the number of classes before the label; equal values rank by class, or a coarse int8 output would win."""
    own = predictions[np.arange(len(labels)), labels][:, None]
    lower = np.arange(predictions.shape[1]) < labels[:, None]
    return np.asarray(((predictions > own) | ((predictions == own) & lower)).sum(1))


def _sigmoid(logit: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -700, 700))))


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _logit(probability: Array) -> Array:
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
