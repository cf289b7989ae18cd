"""Compare measured models with the baseline, and decide at a look which comparisons need further rounds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.benchmark_report import SpeedupEstimate
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, RuntimeConfig
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.speedup import speedup

# Two models whose ratio is known to be within this difference are not measured further: no decision depends on it.
EQUIVALENCE = 0.01


def compare(
    model: MeasuredModel, baseline: MeasuredModel, batch_size: int, min_effect: float, schedule: LookSchedule
) -> SpeedupEstimate:
    """Compute the speedup of a model over the baseline from the rounds that both were measured in."""
    is_same_runtime = RuntimeConfig.of(model.model) == RuntimeConfig.of(baseline.model)
    error = 0.0 if is_same_runtime else RUNTIME_DIFFERENCE
    baseline_times, times, look_error = _common_rounds(baseline, model, batch_size, schedule)
    return speedup(baseline_times, times, min_effect=min_effect, systematic_error=error, error=look_error)


def find_open(
    models: Sequence[MeasuredModel], batch_size: int, min_effect: float, schedule: LookSchedule
) -> list[MeasuredModel]:
    """Return the models that need further rounds at a batch size.

    A candidate needs none if two comparisons are decided: with the baseline (faster, slower or equivalent), and with
    the fastest model (their intervals do not overlap, or they are equivalent). The baseline needs further rounds as
    long as a candidate does. Without measurements of the baseline nothing can be decided.
    """
    measured = [model for model in models if not model.error and batch_size in model.samples]
    baseline = next((model for model in measured if model.is_baseline), None)
    if not baseline or len(measured) == 1:
        return [model for model in measured if batch_size in model.open_sizes]
    candidates = [model for model in measured if model is not baseline]
    estimates = {model.name: compare(model, baseline, batch_size, min_effect, schedule) for model in candidates}
    estimates[baseline.name] = SpeedupEstimate(1.0, 1.0, 1.0, "within noise")
    fastest = max(measured, key=lambda model: estimates[model.name].value)

    def is_decided(model: MeasuredModel, other: MeasuredModel) -> bool:
        first, second = estimates[model.name], estimates[other.name]
        is_apart = first.high < second.low or second.high < first.low
        if other is baseline:
            is_apart = first.verdict != "within noise"
        return model is other or is_apart or _is_equivalent(model, other, batch_size, min_effect, schedule)

    def is_open(model: MeasuredModel) -> bool:
        others = measured if model is fastest else [baseline, fastest]
        return batch_size in model.open_sizes and not all(is_decided(model, other) for other in others)

    still_open = list(filter(is_open, candidates))
    return [baseline, *still_open] if still_open else []


def _is_equivalent(
    model: MeasuredModel, other: MeasuredModel, batch_size: int, min_effect: float, schedule: LookSchedule
) -> bool:
    other_times, times, error = _common_rounds(other, model, batch_size, schedule)
    ratio, margin = speedup(other_times, times, min_effect=0.0, error=error), 1 + max(EQUIVALENCE, min_effect)
    return 1 / margin < ratio.low <= ratio.high < margin


def _common_rounds(
    first: MeasuredModel, second: MeasuredModel, batch_size: int, schedule: LookSchedule
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return the median times of two models in the rounds of both, and the error of the look after them.

    Models are measured from the first round on, without gaps, and stop at a look.
    """
    times = first.round_medians(batch_size), second.round_medians(batch_size)
    rounds = min(map(len, times))
    return times[0][:rounds], times[1][:rounds], schedule.errors[rounds]
