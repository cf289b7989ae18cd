"""Rank measured models: significant improvement over the baseline, and the Pareto front."""

from collections.abc import Mapping, Sequence

from tfopt.measurement.model_measurements import ModelMeasurements

MEMORY_NOISE = 0.05  # peak memory is measured once; allocators and threads change it by a few percent


def is_significantly_better(model: ModelMeasurements, objective: str) -> bool:
    """Test whether a model is significantly better than its parent at the objective."""
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    if batch and (ratio := model.speedup(batch)):
        return bool(ratio["verdict"] == "faster")
    gain = model.gain(objective)
    return gain.interval[0] > _noise(model, objective)


def is_indistinguishable(model: ModelMeasurements, best: ModelMeasurements, objective: str) -> bool:
    """Test whether the intervals of two models' gains at the objective overlap."""
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + _noise(model, objective) >= second.interval[0]


def _noise(model: ModelMeasurements, objective: str) -> float:
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.parent or model).value("memory")


def non_dominated(merits: Mapping[str, Sequence[float]]) -> set[str]:
    """Compute the Pareto front: names without another that is at least as good in every merit and better in one.

    >>> sorted(non_dominated({"fast": (0.97, -1.0), "exact": (0.99, -3.0), "dominated": (0.96, -3.0)}))
    ['exact', 'fast']

    Args:
        merits: For each name its values; higher is better.
    """
    return {
        name
        for name, own in merits.items()
        if not any(
            all(b >= a for a, b in zip(own, other, strict=True)) and tuple(other) != tuple(own)
            for other in merits.values()
        )
    }
