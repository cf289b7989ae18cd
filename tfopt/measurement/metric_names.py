"""Check the metrics of goals before anything runs."""

from collections.abc import Collection, Sequence

from tfopt import formatting
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, slice_of
from tfopt.metric_table import COSTS, ERROR, LOADS, task_metrics

LOAD_PARAMETERS = {"p99_at_rate": ("rate",), "nodes": ("rate",), "cost": ("price",)}  # besides the limit


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


def check_load(max_p99_ms: float, **others: float | None) -> None:
    """Raise ComponentError if `benchmark` gets other parameters of a load, but not the limit that it has to meet."""
    others_set = [f"{name}={value:g}" for name, value in others.items() if value]
    if others_set and not max_p99_ms:
        received = f"benchmark: {', '.join(others_set)} without max_p99_ms"
        expected = "the limit of the p99 in milliseconds, up to which a node takes more requests"
        raise ComponentError(received, expected, "pass max_p99_ms=20, for example")


def check_load_metric(metric: str, parameters: Collection[str], where: str) -> None:
    """Raise ComponentError for a metric of a node under load if `benchmark` does not get what it depends on."""
    missing = [name for name in ("max_p99_ms", *LOAD_PARAMETERS.get(metric, ())) if name not in parameters]
    if metric in LOADS and missing:
        examples = {"max_p99_ms": "20", "rate": "300", "price": "0.2"}
        expected = f"the parameters of benchmark that {formatting.title(metric)} depends on"
        fix = f"pass {' and '.join(f'{name}={examples[name]}' for name in missing)}, for example"
        raise ComponentError(f"{where}, and benchmark without {' and '.join(missing)}", expected, fix)
