"""Answers of a model to records: classes, words or numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.check_drift.columns import Comparison
from tfopt.components.check_drift.intervals import Floats
from tfopt.measurement.parity import has_classes

TOLERANCE = 0.05  # of the standard deviation of the parent's answers: numbers that are closer are the same
MOST_CLASSES = 100  # whose shares are compared, the most frequent ones

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Answers:
    """The outputs for all records of a sample."""

    outputs: Outputs = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of the outputs with a value, or one for each class, for each record."""
        return [name for name, array in self.outputs.items() if array.ndim and array.size]

    def classes(self, name: str) -> NDArray[Any] | None:
        """Return the class of each record; None for numbers, and for probabilities that are independent."""
        array = self._rows(name)
        if array.dtype.kind not in "f":
            return array[:, 0] if array.shape[1] == 1 else None
        if array.shape[1] > 1:
            return np.asarray(array.argmax(1)) if has_classes(array) else None
        is_probability = bool(((array >= 0) & (array <= 1)).all())
        return np.asarray(array[:, 0] >= 0.5).astype(int) if is_probability else None

    def numbers(self, name: str) -> Floats:
        """Return the number of each record, or the mean of its numbers, such as the share of marked pixels."""
        return np.asarray(self._rows(name).mean(1), np.float64)

    def distances(self, name: str, other: "Answers") -> Floats:
        """Return for each record the root of the mean squared difference to another model's numbers."""
        differences = self._rows(name).astype(np.float64) - other._rows(name)
        return np.asarray(np.sqrt(np.square(differences).mean(1)))

    def spread(self, name: str) -> float:
        """Return the standard deviation of all numbers, or 1 if they are equal."""
        return float(self._rows(name).astype(np.float64).std()) or 1.0

    def _rows(self, name: str) -> NDArray[Any]:
        return self.outputs[name].reshape(len(self.outputs[name]), -1)


def compare_answers(reference: Answers, served: Answers) -> Iterator[Comparison]:
    """Yield the comparisons of the shares of classes, or of the distribution of numbers."""
    for name in served.names():
        before, now = reference.classes(name), served.classes(name)
        if before is None or now is None:
            numbers = [each.numbers(name) for each in (reference, served)]
            numbers = [each[np.isfinite(each)] for each in numbers]
            if all(map(len, numbers)):
                yield Comparison(name, "answers", numbers[0], numbers[1])
            continue
        values, counts = np.unique(np.concatenate([before, now]), return_counts=True)
        for value in values[np.argsort(-counts)][:MOST_CLASSES]:
            label = value.decode(errors="replace") if isinstance(value, bytes) else value
            shares = [(each == value).astype(np.float64) for each in (before, now)]
            yield Comparison(f"{name}: class {label}", "class", *shares)


def disagreement(answers: Answers, parent: Answers, scale: Answers) -> Floats:
    """Return for each record whether two models answer differently; ``scale`` has answers with the usual spread."""
    differs = np.zeros(len(next(iter(answers.outputs.values()))), bool)
    for name in answers.names():
        if name not in parent.outputs:
            continue
        one, other = answers.classes(name), parent.classes(name)
        if one is not None and other is not None:
            differs |= np.asarray(one != other)
        else:
            differs |= answers.distances(name, parent) > TOLERANCE * scale.spread(name)
    return differs.astype(np.float64)
