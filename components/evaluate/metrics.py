"""What one record is worth in each metric, from the model's answer and the label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

HIGHER_IS_BETTER = {"accuracy", "auc"}
SMALLEST = float(np.finfo(np.float32).eps)  # a probability of 0 would cost infinity
LARGEST = 1e30  # beyond it a float32 sum of a batch would overflow
REACH = 17.0  # the logit of the float32 nearest to 1 is 16.6


@dataclass(frozen=True)
class Scoring:
    """How answers are judged; decided once, by the baseline's first batch.

    Attributes:
        task: ``classification``, ``binary`` or ``regression``.
        logits: Whether the output needs a softmax or sigmoid to be a probability.
        width: How many numbers a record's answer has.
        top_k: For top-k accuracy.
    """

    task: str
    logits: bool
    width: int
    top_k: int

    @property
    def metrics(self) -> list[str]:
        """The metrics that are means over records, in the order of `values`."""
        if self.task == "regression":
            return ["mean_absolute_error", "mean_squared_error"]
        top = [f"top_{self.top_k}_accuracy"] if self.task == "classification" and self.width > self.top_k else []
        return ["accuracy", *top, "log_loss"]

    @property
    def known_classes(self) -> int:
        """How many classes the answers tell apart; 0 in a regression."""
        return 0 if self.task == "regression" else max(self.width, 2)

    @property
    def ranks(self) -> bool:
        """Whether there is an AUC: two classes."""
        return self.task == "binary" or (self.task == "classification" and self.width == 2)

    def values(self, answers: Array, labels: Array) -> NDArray[np.float64]:
        """Return ``[records, metrics]``; answers are ``[records, width]``."""
        answers = answers.astype(np.float64)
        if self.task == "regression":
            error = answers - labels
            columns = [np.abs(error).mean(1), np.minimum(np.square(error), LARGEST).mean(1)]
            return np.asarray(np.minimum(np.stack(columns, 1), LARGEST))
        labels = labels[:, 0]
        if self.task == "binary":
            chance = _sigmoid(answers[:, 0]) if self.logits else answers[:, 0]
            right = np.where(labels == 1, chance, 1 - chance)
            return np.stack([(self.classes(answers) == labels), -np.log(np.clip(right, SMALLEST, 1 - SMALLEST))], 1)
        chances = _softmax(answers) if self.logits else answers
        right = chances[np.arange(len(labels)), labels]
        loss = -np.log(np.clip(right, SMALLEST, 1 - SMALLEST))
        columns = [self.classes(answers) == labels]
        if len(self.metrics) == 3:
            columns.append(_rank(answers, labels) < self.top_k)
        return np.stack([*columns, loss], 1)

    def classes(self, answers: Array) -> Array | None:
        """The class each answer stands for; None in a regression."""
        if self.task == "regression":
            return None
        if self.task == "binary":
            return (answers[:, 0] > (0.0 if self.logits else 0.5)).astype(np.int64)
        return np.asarray(answers.argmax(1))

    def bins(self, answers: Array, count: int) -> NDArray[np.int64]:
        """Where each answer ranks: equal steps of the logit, fine at both ends, where good models put their answers."""
        if self.task == "binary":
            score = answers[:, 0].astype(np.float64)
            logit = score if self.logits else _logit(score)
        else:
            pair = answers.astype(np.float64)
            logit = pair[:, 1] - pair[:, 0] if self.logits else _logit(pair[:, 1])
        return np.clip((logit + REACH) * (count / (2 * REACH)), 0, count - 1).astype(np.int64)


def looks_like_logits(answers: Array, task: str) -> bool:
    """Whether answers cannot be probabilities: outside 0..1, or rows that do not add up to 1 (int8 is 5 % off)."""
    if task == "regression":
        return False
    inside = bool(((answers >= 0) & (answers <= 1)).all())
    return not inside or (task == "classification" and bool((np.abs(answers.sum(1) - 1) > 0.05).any()))


def auc(histogram: NDArray[Any]) -> tuple[Array, Array]:
    """Area under the ROC curve, and how far off it can be, from counts ``[…, class, bin]``; NaN without both classes.

    A pair of records in one bin counts half, as a tie does; the true order can change that by at most half again.
    """
    negative, positive = (histogram[..., side, :].astype(np.float64) for side in (0, 1))
    pairs = positive.sum(-1) * negative.sum(-1)
    tied = (positive * negative).sum(-1) / 2
    won = (positive * (np.cumsum(negative, -1) - negative)).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (won + tied) / pairs, tied / pairs


def _rank(answers: Array, labels: Array) -> Array:
    """How many classes come before the right one; of equals the lower does, so that a coarse int8 output cannot win."""
    own = answers[np.arange(len(labels)), labels][:, None]
    lower = np.arange(answers.shape[1]) < labels[:, None]
    return np.asarray(((answers > own) | ((answers == own) & lower)).sum(1))


def _sigmoid(logit: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -700, 700))))


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _logit(chance: Array) -> Array:
    with np.errstate(divide="ignore"):
        inside = np.clip(chance, 0, 1)
        return np.asarray(np.log(inside) - np.log1p(-inside))
