"""Which model: proven better at the objective than the parent, best of those, smallest of the equally good."""

from collections.abc import Collection, Sequence

from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.ranking import is_indistinguishable, is_significantly_better, non_dominated

FRONT = ("latency", "size")  # with the main metric, what the Pareto front is over


def choose(models: Sequence[ModelMeasurements], passed: Collection[str], objective: str) -> ModelMeasurements:
    """Choose one model; the parent, which comes first in ``models``, unless another is proven better.

    Args:
        models: All of them, the parent first.
        passed: The names of those that meet every goal.
        objective: The metric to be best at.
    """
    parent, *candidates = models
    able = [model for model in candidates if model.name in passed and objective in model.metrics]
    if parent.name in passed:  # otherwise whatever meets the goals is better than the parent
        able = [model for model in able if is_significantly_better(model, objective)]
    if not able:
        return parent
    best = max(able, key=lambda model: (model.gain(objective).value, model.digest, model.name))
    equals = [model for model in able if is_indistinguishable(model, best, objective)]
    return min(equals, key=lambda model: (_sizes(model), -model.gain(objective).value, model.digest, model.name))


def pareto_front(models: Sequence[ModelMeasurements], main_metric: str) -> set[str]:
    """The names of the models that no other beats: at least as good in quality, latency and size, and better in one."""
    needed = {main_metric, *FRONT}
    sound = {
        model.name: _merits(model, main_metric)
        for model in models
        if not model.error and needed <= model.metrics.keys()
    }
    return non_dominated(sound)


def _merits(model: ModelMeasurements, main_metric: str) -> tuple[float, ...]:
    return tuple(
        model.value(metric) if model.higher_is_better(metric) else -model.value(metric)
        for metric in (main_metric, *FRONT)
    )


def _sizes(model: ModelMeasurements) -> tuple[float, float]:
    return model.value("size"), model.value("size_gzipped")
