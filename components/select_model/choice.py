"""Choose one of the measured models: significantly better than the baseline, the best, then the smallest."""

from collections.abc import Collection, Sequence

from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.significance import is_indistinguishable, is_significantly_better


def choose(models: Sequence[ModelMeasurements], passed: Collection[str], objective: str) -> ModelMeasurements:
    """Choose one model; the baseline unless a candidate is significantly better.

    Candidates that are indistinguishable from the best at the objective are ranked by size. If the baseline misses a
    goal, a candidate that meets all goals need not be better than it. ``models`` has the baseline first, ``passed`` the
    names of the models that meet every goal.
    """
    baseline, *candidates = models
    eligible = [model for model in candidates if model.name in passed and objective in model.metrics]
    if baseline.name in passed:
        eligible = [model for model in eligible if is_significantly_better(model, objective)]
    if not eligible:
        return baseline
    if compared := [model for model in eligible if not model.disturbance(objective)]:
        eligible = compared
    else:  # speeds of a disturbed machine rank nothing
        return min(eligible, key=lambda model: (_sizes(model), model.digest, model.name))
    best = max(eligible, key=lambda model: (model.gain(objective).value, model.digest, model.name))
    equals = [model for model in eligible if is_indistinguishable(model, best, objective)]
    return min(equals, key=lambda model: (_sizes(model), -model.gain(objective).value, model.digest, model.name))


def _sizes(model: ModelMeasurements) -> tuple[float, float]:
    return model.value("size"), model.value("size_gzipped")
