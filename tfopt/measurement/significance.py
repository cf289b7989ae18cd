"""Test whether a model is significantly better than its parent, or distinguishable from another model."""

from tfopt.artifacts.benchmark_report import SpeedupEstimate
from tfopt.measurement.model_measurements import ModelMeasurements

MEMORY_NOISE = 0.05  # peak memory is measured once; allocators and threads change it by a few percent


def is_significantly_better(model: ModelMeasurements, objective: str) -> bool:
    """Test whether a model is significantly better than its parent at the objective."""
    if ratio := objective_speedup(model, objective):
        return ratio.verdict == "faster"
    return model.gain(objective).interval[0] > noise(model, objective)


def is_indistinguishable(model: ModelMeasurements, best: ModelMeasurements, objective: str) -> bool:
    """Test whether the intervals of two models' gains at the objective overlap."""
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + noise(model, objective) >= second.interval[0]


def objective_speedup(model: ModelMeasurements, objective: str) -> SpeedupEstimate | None:
    """Return the speedup at the batch size of the objective; None if it is not one of speed, or was not measured."""
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    return model.speedup(batch) if batch else None


def noise(model: ModelMeasurements, objective: str) -> float:
    """Return the largest change of the objective that is not an improvement, in the metric's unit."""
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.parent or model).value("memory")
