"""Test whether a model is significantly better than its baseline, or distinguishable from another model."""

from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.reports.benchmark_report import SpeedupEstimate

MEMORY_NOISE = 0.05  # peak memory is measured once; allocators and threads change it by a few percent


def is_significantly_better(model: ModelMeasurements, objective: str) -> bool:
    """Test whether a model is significantly better than its baseline at the objective."""
    if model.disturbance(objective):
        return False
    if ratio := model.ratio(objective):
        return ratio.verdict == "faster"
    gain = model.gain(objective)
    return not gain.no_bound and gain.interval[0] > noise(model, objective)


def is_indistinguishable(model: ModelMeasurements, best: ModelMeasurements, objective: str) -> bool:
    """Test whether two models may be equally good at the objective.

    If one of them is the best model, their ratio was measured. If it is unstable, or neither is the best, they
    may be equally good if the intervals of their gains overlap.
    """
    ratio = _ratio_to_best(model, best, objective)
    if ratio and not ratio.is_unstable:
        return ratio.verdict != "slower"
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + noise(model, objective) >= second.interval[0]


def _ratio_to_best(first: ModelMeasurements, second: ModelMeasurements, objective: str) -> SpeedupEstimate | None:
    measured = [ratio for model in (first, second) if (ratio := model.ratio_to_best(objective))]
    return measured[0] if len(measured) == 1 else None


def noise(model: ModelMeasurements, objective: str) -> float:
    """Return the largest change of the objective that is not an improvement, in the metric's unit."""
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.baseline or model).value("memory")
