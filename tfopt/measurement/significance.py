"""Test whether a model is significantly better than its baseline, or distinguishable from another model."""

from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.reports.benchmark_report import SpeedupEstimate

MEMORY_NOISE = 0.05  # peak memory is measured once; allocators and threads change it by a few percent


def is_significantly_better(model: ModelMeasurements, objective: str) -> bool:
    """Test whether a model is significantly better than its baseline at the objective."""
    if model.disturbance(objective):
        return False
    if ratio := objective_speedup(model, objective):
        return ratio.verdict == "faster"
    gain = model.gain(objective)
    return not gain.no_bound and gain.interval[0] > noise(model, objective)


def is_indistinguishable(model: ModelMeasurements, best: ModelMeasurements, objective: str) -> bool:
    """Test whether two models may be equally good at the objective.

    If one of them is the fastest model, their ratio was measured. If it is unstable, or neither is the fastest, they
    may be equally good if the intervals of their gains overlap.
    """
    ratio = _ratio_to_fastest(model, best, objective)
    if ratio and not ratio.is_unstable:
        return ratio.verdict != "slower"
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + noise(model, objective) >= second.interval[0]


def objective_speedup(model: ModelMeasurements, objective: str) -> SpeedupEstimate | None:
    """Return the speedup at the batch size of the objective; None if it is not one of speed, or was not measured."""
    batch = _batch(model, objective)
    return model.speedup(batch) if batch else None


def _ratio_to_fastest(first: ModelMeasurements, second: ModelMeasurements, objective: str) -> SpeedupEstimate | None:
    batch = _batch(first, objective)
    ratios = [model.benchmark.over_fastest.get(batch) for model in (first, second) if batch and model.benchmark]
    measured = [ratio for ratio in ratios if ratio]
    return measured[0] if len(ratios) == 2 and len(measured) == 1 else None


def _batch(model: ModelMeasurements, objective: str) -> str | None:
    return {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)


def noise(model: ModelMeasurements, objective: str) -> float:
    """Return the largest change of the objective that is not an improvement, in the metric's unit."""
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.baseline or model).value("memory")
