"""Check the metrics of goals before anything runs."""

from collections.abc import Sequence

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, slice_of
from tfopt.metric_table import COSTS, ERROR, task_metrics


def user_metric(reference: str) -> str:
    """Return the name of a metric of the user from its reference.

    >>> user_metric("module:mean_iou")
    'mean_iou'
    """
    return reference.strip().rpartition(":")[2]


def check_goal_metrics(
    goals: Sequence[Goal], *, task: str, top_k: int, metrics: Sequence[str], slices: Sequence[str]
) -> None:
    """Raise ComponentError for a goal on a metric or a slice that no run of `evaluate` with these values can have."""
    quality = [*map(user_metric, metrics), *task_metrics(task, top_k), QUALITY]
    for goal in goals:
        parts = slice_of(goal.metric)
        name, feature = parts[:2] if parts else (goal.metric, None)
        names = quality if parts else [*quality, *COSTS, ERROR]
        if name not in names:
            where = "a metric of an evaluation" if parts else "a metric that is measured"
            hint = "" if metrics else ", or one of your own in metrics=module:FUNCTION"
            raise ComponentError(f"goal {goal.text!r}", f"{where}: {', '.join(names)}{hint}", nearest(name, names))
        if feature and feature not in slices:
            fix = nearest(feature, slices) if slices else f"pass slices={feature}"
            evaluated = ", ".join(slices) or "there is none"
            raise ComponentError(f"goal {goal.text!r}", f"a feature in slices of the evaluation: {evaluated}", fix)
