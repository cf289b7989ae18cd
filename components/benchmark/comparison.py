"""Compare measured models with the baseline, and decide at a look which comparisons need further rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, RuntimeConfig
from tfopt.components.benchmark.parameters import Settings
from tfopt.measurement.interim_looks import SPREAD_ERROR, LookSchedule, standard_error
from tfopt.measurement.speedup import speedup
from tfopt.reports.benchmark_report import UNSTABLE, ColdStart, SpeedupEstimate

# Two models whose ratio is known to be within this difference are not measured further: no decision depends on it.
EQUIVALENCE = 0.01
LEAST_WAIT = 0.01  # share of the time that a model waited for its cores; less, as on idle machines, counts as none


def compare(
    model: MeasuredModel,
    other: MeasuredModel,
    batch_size: int,
    min_effect: float,
    schedule: LookSchedule,
    *,
    systematic_error: float | None = None,
) -> SpeedupEstimate:
    """Compute the speedup of a model over another one from the rounds that both were measured in.

    ``systematic_error`` is the relative difference that all of these rounds may share; None if their runtimes decide.
    """
    times = _common_times(other, model, batch_size)
    error = _systematic_error(model, other) if systematic_error is None else systematic_error
    loads = [each.round_loads(batch_size) for each in (other, model)]
    return _compare_rounds(times, loads, error, min_effect, schedule)


def compare_starts(models: Sequence[MeasuredModel], settings: Settings, schedule: LookSchedule) -> dict[str, ColdStart]:
    """Compare the times from the start of loading to the end of the first call, by the name of the model.

    Each round starts every model in a new process. The files are in the page cache then.
    """
    started = [model for model in models if not model.error and model.starts]
    baseline = next((model for model in started if model.is_baseline), None)
    if baseline is None:
        return {}

    def ratio(model: MeasuredModel, other: MeasuredModel, min_effect: float) -> SpeedupEstimate | None:
        if model is other:
            return None
        rounds = min(len(model.starts), len(other.starts))
        times = np.array(other.starts[:rounds]), np.array(model.starts[:rounds])
        loads = [each.round_loads(min(each.is_warm)) for each in (other, model)]
        return _compare_rounds(times, loads, _systematic_error(model, other), min_effect, schedule)

    ratios = {model.name: ratio(model, baseline, settings.min_effect) for model in started}
    best = max(started, key=lambda model: ((own := ratios[model.name]) and own.value) or 1.0)
    margin = max(EQUIVALENCE, settings.min_effect)
    return {
        model.name: ColdStart(float(np.median(model.starts)), ratios[model.name], ratio(model, best, margin))
        for model in started
    }


def _compare_rounds(
    times: tuple[NDArray[np.float64], NDArray[np.float64]],
    loads: Sequence[Sequence[RoundLoad]],
    systematic_error: float,
    min_effect: float,
    schedule: LookSchedule,
) -> SpeedupEstimate:
    """Compute a speedup from common rounds: the times of the other model and of the model, and the load by others."""
    rounds = len(times[0])
    disturbed = np.array([any(load.is_disturbed for load in pair) for pair in zip(*loads, strict=False)][:rounds])
    quiet = np.flatnonzero(~disturbed).tolist()
    waits = [float(np.mean([own[index].waited for index in quiet] or [0.0])) for own in loads]
    other_wait, own_wait = (wait if wait > LEAST_WAIT else 0.0 for wait in waits)
    return speedup(
        *times,
        min_effect=min_effect,
        systematic_error=systematic_error,
        error=schedule.errors[rounds],
        disturbed=disturbed,
        waits=(other_wait, own_wait),
    )


def _common_times(
    first: MeasuredModel, second: MeasuredModel, batch_size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the times of the rounds that both models were measured in: from the first one on, without gaps.

    They are relative to those of the baseline in the same turns, because large models take their turns minutes apart.
    """
    times = first.relative_times(batch_size), second.relative_times(batch_size)
    rounds = min(map(len, times))
    return times[0][:rounds], times[1][:rounds]


@dataclass(frozen=True)
class Look:
    """The comparisons of the models that were measured at one batch size, after the rounds so far."""

    models: Sequence[MeasuredModel]
    batch_size: int
    min_effect: float  # relative difference that counts as within noise
    seeks_fastest: bool  # True if the models are also compared with the fastest one
    schedule: LookSchedule

    @classmethod
    def of(cls, models: Sequence[MeasuredModel], batch_size: int, settings: Settings, schedule: LookSchedule) -> "Look":
        """Leave out the models that failed, or were not measured at this batch size."""
        measured = [model for model in models if not model.error and batch_size in model.samples]
        return cls(measured, batch_size, settings.min_effect, batch_size == settings.objective_size, schedule)

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

    @cached_property
    def fastest(self) -> MeasuredModel:
        """The model with the largest speedup over the baseline."""
        return max(self.models, key=lambda model: self.speedups[model.name].value)

    def compare_with_fastest(self, model: MeasuredModel) -> SpeedupEstimate | None:
        """Compute the speedup over the fastest model; None for that model itself, or without a measured baseline."""
        if not self.baseline or model is self.fastest:
            return None
        return self._compare(model, self.fastest)

    def find_open(self) -> list[MeasuredModel]:
        """Return the models that need further rounds.

        A candidate needs none if its comparisons with the baseline and, for the objective, with the fastest model are
        decided, or would hardly be decided by the remaining rounds. The baseline needs further rounds as long as a
        candidate does. Without measurements of the baseline nothing can be decided.
        """
        if not self.baseline or len(self.models) == 1:
            return [model for model in self.models if self.batch_size in model.open_sizes]
        still_open = [
            model
            for model in self._open_candidates()
            if not all(self._is_decided(model, other) or self._is_futile(model, other) for other in self._rivals(model))
        ]
        return [self.baseline, *still_open] if still_open else []

    def find_unstable(self) -> list[MeasuredModel]:
        """Return the open candidates with a comparison for which too many rounds were disturbed."""
        if not self.baseline:
            return []
        return [
            model
            for model in self._open_candidates()
            if any(other is not model and self._compare(model, other).is_unstable for other in self._rivals(model))
        ]

    def _open_candidates(self) -> list[MeasuredModel]:
        return [model for model in self.models if model is not self.baseline and self.batch_size in model.open_sizes]

    def describe_stop(self, model: MeasuredModel) -> str:
        """Return why a candidate needs no further rounds."""
        count = f"{len(model.samples[self.batch_size])} of {max(self.schedule.errors)} rounds"
        undecided = {other.name for other in self._rivals(model) if not self._is_decided(model, other)}
        if not undecided:
            return f"decided after {count}"
        names = " and ".join(sorted(undecided))
        return f"stopped after {count}, because the others would hardly show a difference from {names}"

    def _compare(self, model: MeasuredModel, other: MeasuredModel) -> SpeedupEstimate:
        """Compare two models; a difference from another one than the baseline counts from `EQUIVALENCE` on."""
        return compare(model, other, self.batch_size, self._min_effect(other), self.schedule)

    def _min_effect(self, other: MeasuredModel) -> float:
        return self.min_effect if other is self.baseline else max(EQUIVALENCE, self.min_effect)

    def _is_decided(self, model: MeasuredModel, other: MeasuredModel) -> bool:
        """Return True if one of two models is faster, or if they are equivalent."""
        if model is other:
            return True
        verdict = self._compare(model, other).verdict
        if verdict != "within noise":
            return verdict != UNSTABLE
        ratio = compare(model, other, self.batch_size, 0.0, self.schedule, systematic_error=0.0)
        margin = 1 + max(EQUIVALENCE, self.min_effect)
        return 1 / margin < ratio.low <= ratio.high < margin

    def _rivals(self, model: MeasuredModel) -> Sequence[MeasuredModel]:
        """Return the models that the selection compares a candidate with."""
        assert self.baseline
        if not self.seeks_fastest:
            return [self.baseline]
        return self.models if model is self.fastest else [self.baseline, self.fastest]

    def _is_futile(self, model: MeasuredModel, other: MeasuredModel) -> bool:
        ratio = self._compare(model, other)
        if ratio.is_unstable:  # its spread is that of the disturbance
            return False
        times = _common_times(other, model, self.batch_size)
        spread = speedup(*times, min_effect=0.0, error=SPREAD_ERROR)
        margin = math.log1p(_systematic_error(model, other)) + math.log1p(self._min_effect(other))
        error = standard_error(spread.low, spread.high)
        return self.schedule.is_futile(len(times[0]), math.log(ratio.value), error, margin)


def _systematic_error(model: MeasuredModel, other: MeasuredModel) -> float:
    """Return the relative difference that all rounds of two models may share, because their processes differ."""
    is_same_runtime = RuntimeConfig.of(model.model) == RuntimeConfig.of(other.model)
    return 0.0 if is_same_runtime else RUNTIME_DIFFERENCE
