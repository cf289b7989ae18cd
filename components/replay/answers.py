"""Compare the answers of two models record by record, and stop when the goals are decided.

Intervals are computed at numbers of records that are fixed in advance (`LookSchedule`), and the error is divided among
them, so that they hold together, whenever the comparison ends (ADR 41). Each is exact (Clopper and Pearson, ADR 61).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tfopt.components.replay.replay_goals import DISAGREEMENT
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import LEVEL, share_interval
from tfopt.measurement.goals import Goal
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.parity import has_classes
from tfopt.reports.evaluation_report import Metric, ModelEvaluation, SliceMetrics
from tfopt.reports.replay_report import Look, SliceDisagreement

FIRST = 64  # records of the first look
MIN_RANGE = 0.01  # fraction of the largest value: the least range of an output that is nearly constant
CLASSES: Final = "classes"

Outputs = Mapping[str, NDArray[Any]]
Mask = NDArray[np.bool_]


@dataclass
class AnswerComparison:
    """The answers of two models to the same requests; ranges of outputs are those of the first served answers."""

    answers: str  # as in `ReplayTest`
    tolerance: float
    ranges: dict[str, float] = field(default_factory=dict)
    by_class: set[str] = field(default_factory=set)  # outputs that ``auto`` compares by their class
    not_finite: int = 0  # records in which both models return NaN or infinity

    def fit(self, served: Sequence[Outputs]) -> None:
        """Take the ranges of outputs, and whether they have classes, from answers of the served model.

        Raises:
            ComponentError: If all values of an output are NaN or infinite.
        """
        for name in served[0]:
            if served[0][name].dtype.kind not in "fV":
                continue
            values = np.concatenate([answer[name].astype(np.float64).ravel() for answer in served])
            finite = values[np.isfinite(values)]
            if values.size and not finite.size:
                received = f"output {name!r} of the served version: NaN or infinity for all of {len(served)} requests"
                fix = "pass a served version that answers, or another recording"
                raise ComponentError(received, "numbers to compare with", fix)
            largest = float(np.abs(finite).max(initial=0))
            rows = [answer[name].astype(np.float64) for answer in served if answer[name].ndim == 2]
            widths = {row.shape[1] for row in rows}
            if len(widths) > 1 or (rows and has_classes(np.concatenate(rows))):
                self.by_class.add(name)
            self.ranges[name] = max(float(np.ptp(finite)) if finite.size else 0.0, MIN_RANGE * largest, 1e-12)

    def disagreeing(self, served: Outputs, answered: Outputs, records: int) -> Mask:
        """Return for each record whether the answers differ.

        Raises:
            ComponentError: If shapes differ, or the model returns NaN or infinity where the served version does not.
        """
        differs = np.zeros(records, np.bool_)
        for name, expected in served.items():
            answer = np.asarray(answered[name])
            if answer.shape != expected.shape:
                received = f"output {name!r} of shape {list(answer.shape)}"
                raise ComponentError(received, f"{list(expected.shape)}, as the served version", "export it again")
            each = self._differs(name, np.asarray(expected), answer)
            differs |= each if len(each) == records else np.full(records, each.any())
        return differs

    def _differs(self, name: str, expected: NDArray[Any], answer: NDArray[Any]) -> Mask:
        if expected.dtype.kind not in "fV":
            return _per_record(np.asarray(expected != answer))
        one, other = expected.astype(np.float64), answer.astype(np.float64)
        if broken := int((np.isfinite(one) & ~np.isfinite(other)).sum()):
            received = f"output {name!r}: NaN or infinity in {broken} of {other.size} values"
            raise ComponentError(received, "numbers, as the served version returns", "check the weights for NaN")
        is_finite = np.isfinite(one) & np.isfinite(other)
        self.not_finite += int((~_per_record(is_finite, np.all)).sum())
        same = is_finite | (one == other) | (np.isnan(one) & np.isnan(other))
        if self.answers == CLASSES or (self.answers == "auto" and one.ndim == 2 and name in self.by_class):
            return np.asarray((one.argmax(-1) != other.argmax(-1)).reshape(len(one), -1).any(1) | _per_record(~same))
        with np.errstate(invalid="ignore"):
            far = np.abs(one - other) > self.tolerance * self.ranges.get(name, 1e-12)
        return _per_record((far & is_finite) | ~same)


def _per_record(values: Mask, reduce: Any = np.any) -> Mask:
    return np.asarray(reduce(values.reshape(len(values), -1), axis=1) if values.ndim else reduce(values, keepdims=True))


@dataclass
class Disagreement:
    """Counts of records whose answers differ, of all and of each slice, and the goals on them."""

    goals: Sequence[Goal]  # on the disagreement, resolved
    schedule: LookSchedule
    looks: list[Look] = field(default_factory=list)
    records: int = 0
    disagreeing: int = 0
    by_slice: dict[tuple[str, int | str], list[int]] = field(default_factory=dict)  # records, and disagreeing ones

    def add(self, differs: Mask, slices: Mapping[str, NDArray[Any]]) -> None:
        """Count the records of a request."""
        self.records += len(differs)
        self.disagreeing += int(differs.sum())
        for feature, values in slices.items():
            for value, each in zip(values, differs, strict=True):
                counts = self.by_slice.setdefault((feature, slice_value(value)), [0, 0])
                counts[0] += 1
                counts[1] += int(each)

    def look(self, error: float) -> str | None:
        """Compute the intervals of a look; return "met" or "missed" if they decide the goals."""
        measured = self.measurements(error)
        total = measured.quality[DISAGREEMENT]
        self.looks.append(Look(self.records, self.disagreeing, total.low, total.high))
        if any(goal.number < estimate.interval[0] for goal, estimate in self._estimates(measured)):
            return "missed"
        has_met = all(self.failure(goal, measured) is None for goal in self.goals)
        return "met" if self.goals and has_met else None

    def _estimates(self, measured: ModelMeasurements) -> Iterator[tuple[Goal, Any]]:
        for goal in self.goals:
            if estimate := measured.estimate(goal.metric):
                yield goal, estimate

    def failure(self, goal: Goal, measured: ModelMeasurements) -> str | None:
        """Explain why a goal is missed, with what was measured at a look; None if it is met."""
        return goal.failure(measured, proven=True, examples=self.records)

    def measurements(self, error: float) -> ModelMeasurements:
        """Return the shares with intervals of this error, in the form that goals are compared with."""
        slices = [
            SliceMetrics(feature, value, records, {DISAGREEMENT: _share(count, records, error)}, {})
            for (feature, value), (records, count) in sorted(self.by_slice.items(), key=str)
        ]
        return measurements({DISAGREEMENT: _share(self.disagreeing, self.records, error)}, slices)

    def slices(self, error: float) -> list[SliceDisagreement]:
        """Return the results of the slices."""
        return [
            SliceDisagreement(feature, value, records, count, *share_interval(count, records, error))
            for (feature, value), (records, count) in sorted(self.by_slice.items(), key=str)
        ]


def schedule_looks(records: int) -> LookSchedule:
    """Return the looks of a comparison of at most so many records."""
    return LookSchedule.doubling(FIRST, records, 1 - LEVEL)


def slice_value(value: Any) -> int | str:
    """Return the value of a slice as reports have it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str | bool):
        return str(value)
    return int(value) if float(value).is_integer() else f"{float(value):g}"


def measurements(metrics: dict[str, Metric], slices: list[SliceMetrics]) -> ModelMeasurements:
    """Return metrics in the form that goals are compared with."""
    row = ModelEvaluation("", "", "", None, [], metrics, {}, {}, [], [], slices)
    return ModelMeasurements("", "", "", row, None, None)


def _share(count: int, records: int, error: float) -> Metric:
    low, high = share_interval(count, records, error)
    return Metric(count / records, low, high, higher_is_better=False)
