"""Compare measured models with the baseline, and decide at a look which comparisons need further rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.benchmark_report import SpeedupEstimate
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, RuntimeConfig
from tfopt.measurement.interim_looks import SPREAD_ERROR, LookSchedule, standard_error
from tfopt.measurement.speedup import speedup

# Two models whose ratio is known to be within this difference are not measured further: no decision depends on it.
EQUIVALENCE = 0.01


def compare(
    model: MeasuredModel, baseline: MeasuredModel, batch_size: int, min_effect: float, schedule: LookSchedule
) -> SpeedupEstimate:
    """Compute the speedup of a model over the baseline from the rounds that both were measured in."""
    baseline_times, times, look_error = _common_rounds(baseline, model, batch_size, schedule)
    systematic_error = _systematic_error(model, baseline)
    return speedup(baseline_times, times, min_effect=min_effect, systematic_error=systematic_error, error=look_error)


@dataclass(frozen=True)
class Look:
    """The comparisons of the models at one batch size, after the rounds so far.

    Attributes:
        models: The models that were measured at this batch size.
        batch_size: The batch size.
        min_effect: Relative difference that counts as within noise.
        schedule: The looks of the measurement.
    """

    models: Sequence[MeasuredModel]
    batch_size: int
    min_effect: float
    schedule: LookSchedule

    @classmethod
    def of(cls, models: Sequence[MeasuredModel], batch_size: int, min_effect: float, schedule: LookSchedule) -> "Look":
        """Leave out the models that failed, or were not measured at this batch size."""
        measured = [model for model in models if not model.error and batch_size in model.samples]
        return cls(measured, batch_size, min_effect, schedule)

    @cached_property
    def baseline(self) -> MeasuredModel | None:
        """The baseline, if it was measured."""
        return next((model for model in self.models if model.is_baseline), None)

    @cached_property
    def speedups(self) -> dict[str, SpeedupEstimate]:
        """The speedup of each model over the baseline."""
        assert self.baseline
        estimates = {
            model.name: compare(model, self.baseline, self.batch_size, self.min_effect, self.schedule)
            for model in self.models
            if model is not self.baseline
        }
        return {**estimates, self.baseline.name: SpeedupEstimate(1.0, 1.0, 1.0, "within noise")}

    def find_open(self) -> list[MeasuredModel]:
        """Return the models that need further rounds.

        A candidate needs none if its comparisons with the baseline and with the fastest model are decided, or would
        hardly be decided by the remaining rounds. The baseline needs further rounds as long as a candidate does.
        Without measurements of the baseline nothing can be decided.
        """
        if not self.baseline or len(self.models) == 1:
            return [model for model in self.models if self.batch_size in model.open_sizes]
        still_open = [
            model
            for model in self.models
            if model is not self.baseline
            and self.batch_size in model.open_sizes
            and not all(
                self._is_decided(model, other) or self._is_futile(model, other) for other in self._rivals(model)
            )
        ]
        return [self.baseline, *still_open] if still_open else []

    def describe_stop(self, model: MeasuredModel) -> str:
        """Return why a candidate needs no further rounds."""
        count = f"{len(model.samples[self.batch_size])} of {max(self.schedule.errors)} rounds"
        undecided = {other.name for other in self._rivals(model) if not self._is_decided(model, other)}
        if not undecided:
            return f"decided after {count}"
        names = " and ".join(sorted(undecided))
        return f"stopped after {count}, because the others would hardly show a difference from {names}"

    def _is_decided(self, model: MeasuredModel, other: MeasuredModel) -> bool:
        """Return True if one of two models is faster, or if they are equivalent.

        With the baseline, the verdict decides; with another model, whether the intervals of their speedups overlap,
        which is how `select_model` tells models apart.
        """
        first, second = self.speedups[model.name], self.speedups[other.name]
        is_apart = first.high < second.low or second.high < first.low
        if other is self.baseline:
            is_apart = first.verdict != "within noise"
        return model is other or is_apart or self._is_equivalent(model, other)

    def _rivals(self, model: MeasuredModel) -> Sequence[MeasuredModel]:
        """Return the models that the selection compares a candidate with."""
        assert self.baseline
        fastest = max(self.models, key=lambda other: self.speedups[other.name].value)
        return self.models if model is fastest else [self.baseline, fastest]

    def _is_equivalent(self, model: MeasuredModel, other: MeasuredModel) -> bool:
        other_times, times, error = _common_rounds(other, model, self.batch_size, self.schedule)
        ratio, margin = speedup(other_times, times, min_effect=0.0, error=error), 1 + max(EQUIVALENCE, self.min_effect)
        return 1 / margin < ratio.low <= ratio.high < margin

    def _is_futile(self, model: MeasuredModel, other: MeasuredModel) -> bool:
        assert self.baseline
        pairs = [(other, model), (self.baseline, model), (self.baseline, other)]
        difference, *own = [self._standard_error(*pair) for pair in pairs]
        margin = sum(math.log1p(_systematic_error(each, self.baseline)) for each in (model, other))
        if other is self.baseline:
            margin += math.log1p(self.min_effect)
        distance = math.log(self.speedups[model.name].value) - math.log(self.speedups[other.name].value)
        rounds = min(len(each.samples[self.batch_size]) for each in (model, other))
        return self.schedule.is_futile(rounds, distance, difference, sum(own), margin)

    def _standard_error(self, first: MeasuredModel, second: MeasuredModel) -> float:
        if first is second:
            return 0.0
        first_times, times, _ = _common_rounds(first, second, self.batch_size, self.schedule)
        ratio = speedup(first_times, times, min_effect=0.0, error=SPREAD_ERROR)
        return standard_error(ratio.low, ratio.high)


def _systematic_error(model: MeasuredModel, baseline: MeasuredModel) -> float:
    """Return the relative difference that all rounds of two models may share, because their processes differ."""
    is_same_runtime = RuntimeConfig.of(model.model) == RuntimeConfig.of(baseline.model)
    return 0.0 if is_same_runtime else RUNTIME_DIFFERENCE


def _common_rounds(
    first: MeasuredModel, second: MeasuredModel, batch_size: int, schedule: LookSchedule
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the median times of two models in the rounds of both, and the error of the look after them.

    Models are measured from the first round on, without gaps, and stop at a look. Their times are relative to those of
    the baseline in the same turns, because large models take their turns minutes apart.
    """
    times = first.relative_times(batch_size), second.relative_times(batch_size)
    rounds = min(map(len, times))
    return times[0][:rounds], times[1][:rounds], schedule.errors[rounds]
