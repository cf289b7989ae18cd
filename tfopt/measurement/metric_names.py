"""Names of the metrics that goals can name, known before anything runs: of tasks, benchmarks and users."""

from collections.abc import Sequence

from tfopt.errors import ComponentError, nearest
from tfopt.measurement.goals import QUALITY, Goal, slice_of

COSTS = ("latency", "latency_p90", "latency_p99", "throughput", "size", "size_gzipped", "memory", "load")
ERROR = "error"  # the largest difference to the baseline's output
MEANS = {  # the metrics of each task of `evaluate` that are means over records
    "classification": ("accuracy", "log_loss"),
    "binary": ("accuracy", "log_loss"),
    "multi_label": ("label_accuracy", "exact_match_accuracy", "log_loss"),
    "regression": ("mean_absolute_error", "mean_squared_error"),
    "other": (),
}
COUNTED = ("precision", "recall", "f1")  # from counts of classes; ``macro_`` is the mean over several
AREAS = ("auc", "pr_auc")


def top_k_metric(top_k: int) -> str:
    """Return the name of top-k accuracy."""
    return f"top_{top_k}_accuracy"


def user_metric(reference: str) -> str:
    """Return the name of a metric of the user from its reference.

    >>> user_metric("module:mean_iou")
    'mean_iou'
    """
    return reference.strip().rpartition(":")[2]


def task_metrics(task: str, top_k: int) -> list[str]:
    """Return the names of all metrics that an evaluation of a task can have; ``auto`` is any of the tasks."""
    if task == "auto":
        return list(dict.fromkeys(name for one in MEANS for name in task_metrics(one, top_k)))
    names = list(MEANS[task])
    if task == "classification":
        names.append(top_k_metric(top_k))
    if task in ("classification", "binary", "multi_label"):
        names += [*COUNTED, *AREAS] if task != "multi_label" else COUNTED
    if task in ("classification", "multi_label"):
        names += [f"macro_{name}" for name in COUNTED]
    return names


def check_goal_metrics(
    goals: Sequence[Goal], *, task: str, top_k: int, metrics: Sequence[str], slices: Sequence[str]
) -> None:
    """Raise ComponentError for a goal on a metric or a slice that no evaluation with these parameters can have.

    Args:
        goals: Parsed goals.
        task: The task of `evaluate`.
        top_k: Its k of top-k accuracy.
        metrics: References to the user's metrics.
        slices: The features whose slices are evaluated.
    """
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
