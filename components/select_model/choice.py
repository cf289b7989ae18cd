"""Which model: proven better at the objective than the parent, best of those, smallest of the equally good."""

from collections.abc import Collection, Sequence

from tfopt.measurements import Measured
from tfopt.pareto import front

FRONT = ("latency", "size")  # with the main metric, what the Pareto front is over
MEMORY_NOISE = 0.05  # a peak is measured once; allocators and threads move it by a few percent


def choose(models: Sequence[Measured], passed: Collection[str], objective: str) -> Measured:
    """Choose one model; the parent, which comes first in ``models``, unless another is proven better.

    Args:
        models: All of them, the parent first.
        passed: The names of those that meet every goal.
        objective: The metric to be best at.
    """
    parent, *candidates = models
    able = [model for model in candidates if model.name in passed and objective in model.metrics]
    if parent.name in passed:  # otherwise whatever meets the goals is better than the parent
        able = [model for model in able if is_proven(model, objective)]
    if not able:
        return parent
    best = max(able, key=lambda model: (model.gain(objective).value, model.digest, model.name))
    equals = [model for model in able if is_equal(model, best, objective)]
    return min(equals, key=lambda model: (_sizes(model), -model.gain(objective).value, model.digest, model.name))


def is_proven(model: Measured, objective: str) -> bool:
    """Whether a model is better at the objective than the parent beyond doubt."""
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    if batch and (ratio := model.speedup(batch)):
        return bool(ratio["verdict"] == "faster")
    gain = model.gain(objective)
    return gain.interval[0] > _noise(model, objective)


def is_equal(model: Measured, best: Measured, objective: str) -> bool:
    """Whether two models' gains at the objective cannot be told apart."""
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + _noise(model, objective) >= second.interval[0]


def pareto_front(models: Sequence[Measured], main_metric: str) -> set[str]:
    """The names of the models that no other beats: at least as good in quality, latency and size, and better in one."""
    needed = {main_metric, *FRONT}
    sound = {
        model.name: _merits(model, main_metric)
        for model in models
        if not model.error and needed <= model.metrics.keys()
    }
    return front(sound)


def _merits(model: Measured, main_metric: str) -> tuple[float, ...]:
    return tuple(
        model.value(metric) if model.higher_is_better(metric) else -model.value(metric)
        for metric in (main_metric, *FRONT)
    )


def _noise(model: Measured, objective: str) -> float:
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.parent or model).value("memory")


def _sizes(model: Measured) -> tuple[float, float]:
    return model.value("size"), model.value("size_gzipped")
