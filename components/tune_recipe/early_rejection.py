"""Cheap checks before a model is measured: its size, and its outputs on a few records."""

from collections.abc import Sequence

from tfopt.artifacts import Model
from tfopt.components.tune_recipe.trial_models import OutputDifference
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import from_sizes
from tfopt.metric_table import CLASSIFICATION, SIZES, mean_metrics

ACCURACY = mean_metrics(CLASSIFICATION)[0].name  # no metric of a user has this name
Z = 1.96  # of a 95 % interval
BROKEN = 0.5  # 1 - correlation, or the share of changed classes, that no goal allows


def find_missed_size_goal(child: Model, baseline: Model, goals: Sequence[Goal]) -> str | None:
    """Return how a model misses a goal on its size, or None. Sizes are exact, so this never rejects a good model."""
    after = from_sizes(child, from_sizes(baseline, None))
    failures = (goal.failure(after, proven=True, examples=0) for goal in goals if goal.metric in SIZES)
    return next((failure for failure in failures if failure), None)


def find_excessive_difference(
    difference: OutputDifference, goals: Sequence[Goal], main_metric: str | None
) -> str | None:
    """Return why a model with these differences cannot meet the goals, or None.

    Accuracy falls by at most the share of records whose class changes, and for a good baseline by nearly as much. A
    model is rejected only if even the lower bound of that share is twice what the goal allows; closer to the goal, only
    `evaluate` can decide. Changed classes count only if the main metric of the evaluation, which is None before the
    first one, is accuracy.
    """
    if difference.decorrelation > BROKEN:
        return f"correlation {1 - difference.decorrelation:.2f} with the parent on {difference.records} records"
    if main_metric != ACCURACY:
        return None
    allowed = [2 * goal.number for goal in goals if goal.kind == "max_degradation" and goal.metric == main_metric]
    least = wilson_lower_bound(difference.changed, difference.records)
    if least <= min(allowed, default=BROKEN):
        return None
    changed = f"{difference.changed} of {difference.records} records change their class"
    return f"{changed}: at least {least:.1%}, twice what the goal allows"


def wilson_lower_bound(count: int, total: int) -> float:
    """Compute the lower end of Wilson's 95 % interval of a share.

    >>> round(wilson_lower_bound(10, 64), 3), wilson_lower_bound(0, 64)
    (0.087, 0.0)
    """
    share = count / total
    middle = share + Z * Z / (2 * total)
    half = Z * ((share * (1 - share) + Z * Z / (4 * total)) / total) ** 0.5
    return max(0.0, (middle - half) / (1 + Z * Z / total)) if count else 0.0
