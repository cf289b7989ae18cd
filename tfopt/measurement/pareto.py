"""Compute the Pareto front of measured models."""

from collections.abc import Mapping, Sequence

from tfopt.measurement.model_measurements import ModelMeasurements

COSTS = ("latency", "size")  # besides the main metric


def pareto_front(models: Sequence[ModelMeasurements], main_metric: str) -> set[str]:
    """Return the names of the models on the Pareto front of the main metric, latency and size.

    Models with an error, or without one of these metrics, are left out.
    """
    metrics = (main_metric, *COSTS)
    measured = [model for model in models if not model.error and set(metrics) <= model.metrics.keys()]
    return non_dominated({
        model.name: [model.value(name) if model.higher_is_better(name) else -model.value(name) for name in metrics]
        for model in measured
    })  # fmt: skip


def non_dominated(merits: Mapping[str, Sequence[float]]) -> set[str]:
    """Compute the Pareto front: names without another with all merits as high or higher, and one that is higher.

    >>> sorted(non_dominated({"fast": (0.97, -1.0), "exact": (0.99, -3.0), "dominated": (0.96, -3.0)}))
    ['exact', 'fast']
    """

    def is_dominated(own: Sequence[float]) -> bool:
        others = [other for other in merits.values() if tuple(other) != tuple(own)]
        return any(all(b >= a for a, b in zip(own, other, strict=True)) for other in others)

    return {name for name, own in merits.items() if not is_dominated(own)}
