"""Losses of the outputs of a rounded model: divergence from the float model's, and loss against the labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.reports.sensitivity_report import Loss

Array = NDArray[Any]
Outputs = Sequence[Mapping[str, Array]]  # of each batch, by name

SMALLEST = 1e-12  # probability instead of zero
KL, MSE = "Kullback-Leibler divergence", "mean squared error divided by the variance"


class LossMeasure:
    """Losses relative to the outputs of the float model for the same batches, with labels or without."""

    def __init__(self, reference: Outputs, labels: Sequence[Array] | None) -> None:
        """Store the outputs of the float model, and choose the losses that fit them."""
        self.reference = reference
        floats = [name for name, array in reference[0].items() if array.dtype.kind == "f"]
        arrays = {name: [batch[name] for batch in reference] for name in floats}
        self._kinds = {name: KL if _are_probabilities(arrays[name]) else MSE for name in floats}
        self._variances = {name: _variance(arrays[name]) for name in floats}
        self._labels, self.task, self._output = labels, None, floats[0] if len(floats) == 1 else ""
        if labels is not None and self._output:
            self.task = _find_task(np.concatenate([_rows(array) for array in arrays[self._output]]), labels)
        self._task_loss = self._measure_task(reference)

    @property
    def divergence(self) -> str:
        """Return what the divergence is, for each output if they differ."""
        kinds = set(self._kinds.values())
        return kinds.pop() if len(kinds) == 1 else ", ".join(f"{name}: {kind}" for name, kind in self._kinds.items())

    def measure(self, outputs: Outputs) -> Loss:
        """Return the losses of these outputs."""
        divergence = 0.0
        for name, kind in self._kinds.items():
            pairs = [(before[name], after[name]) for before, after in zip(self.reference, outputs, strict=True)]
            errors = [_divergence(p, q) if kind == KL else np.square(p - q, dtype=np.float64) for p, q in pairs]
            divergence += float(np.mean(np.concatenate([error.ravel() for error in errors])) / self._variances[name])
        task = self._measure_task(outputs)
        increase = None if task is None or self._task_loss is None else task - self._task_loss
        return Loss(divergence, increase)

    def _measure_task(self, outputs: Outputs) -> float | None:
        if self.task is None or self._labels is None:
            return None
        rows = np.concatenate([_rows(batch[self._output]) for batch in outputs]).astype(np.float64)
        labels = np.concatenate([_rows(array) for array in self._labels])
        if self.task == "mean squared error":
            return float(np.mean(np.square(rows - labels)))
        if not _are_probabilities([rows]):
            shifted = rows - rows.max(axis=1, keepdims=True)
            rows = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        chosen = rows[np.arange(len(rows)), labels[:, 0].astype(np.int64)]
        return float(np.mean(-np.log(np.maximum(chosen, SMALLEST))))


def _find_task(rows: Array, labels: Sequence[Array]) -> str | None:
    values = np.concatenate([_rows(array) for array in labels])
    if values.dtype.kind not in "fiu" or len(values) != len(rows):
        return None
    is_class = values.dtype.kind in "iu" and values.shape[1] == 1 and values.min() >= 0
    if is_class and values.max() < rows.shape[1] > 1:
        return "cross-entropy"
    return "mean squared error" if values.shape == rows.shape else None


def _rows(array: Array) -> Array:
    return array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)


def _are_probabilities(arrays: Sequence[Array]) -> bool:
    return all(
        array.ndim > 1 and array.shape[-1] > 1 and bool((array >= 0).all() and np.allclose(array.sum(-1), 1, atol=1e-3))
        for array in arrays
    )


def _variance(arrays: Sequence[Array]) -> float:
    """Return the variance of an output's values; 1 for probabilities, whose divergence has no scale."""
    if _are_probabilities(arrays):
        return 1.0
    return float(np.var(np.concatenate([array.ravel() for array in arrays]), dtype=np.float64)) or 1.0


def _divergence(reference: Array, rounded: Array) -> Array:
    p, q = (np.maximum(values.astype(np.float64), SMALLEST) for values in (reference, rounded))
    return np.asarray((p * np.log(p / q)).sum(-1))
