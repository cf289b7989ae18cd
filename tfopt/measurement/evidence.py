"""Compute what a number of records can show about a share, before any model is measured."""

from collections.abc import Sequence
from typing import Final

from tfopt import formatting
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import SMALLEST_SAMPLE, records_needed, smallest_visible_loss
from tfopt.measurement.goals import QUALITY, read_goals
from tfopt.measurement.metric_names import user_metric
from tfopt.measurement.model_measurements import main_metric
from tfopt.metric_table import CLASSIFICATION, REGRESSION, find_metric, mean_metrics
from tfopt.reports.evaluation_report import EvaluationReport

ESTIMATE = "estimate"  # the value of `confidence` that compares measured values, without intervals
DEGRADATION_NOTE: Final = "degradation_note"  # key of a model card's facts


def describe_visible_loss(records: int, candidates: int, metric: str = "accuracy") -> str:
    """Return what the records can show at best about a metric, in a sentence.

    >>> describe_visible_loss(62, 1)
    '62 records cannot exclude a loss of less than 5.78 points of accuracy, even if no record differs'
    >>> describe_visible_loss(62, 1, "f1")
    '62 records cannot exclude a loss of f1 that 5.78% of all records cause, even if no record differs'
    >>> describe_visible_loss(9, 1, "f1")
    '9 records show nothing about f1: its interval is a bootstrap, which is used from 10 records on'
    """
    loss = smallest_visible_loss(records, candidates)
    among = f" in any of {candidates} candidates" if candidates > 1 else ""
    title = formatting.title(metric)
    if (row := find_metric(metric)) and row.kind == "share":
        seen = f"a loss of less than {formatting.distance(metric, loss)} of {title}{among}"
    elif records < SMALLEST_SAMPLE:
        used = f"its interval is a bootstrap, which is used from {SMALLEST_SAMPLE} records on"
        return f"{records:,} records show nothing about {title}: {used}"
    else:
        seen = f"a loss of {title} that {100 * loss:.2f}% of all records cause{among}"
    return f"{records:,} records cannot exclude {seen}, even if no record differs"


def describe_evaluation(report: EvaluationReport) -> str:
    """Return what the records of an evaluation can show at best about its main metric."""
    return describe_visible_loss(report.counts.evaluated, report.interval.candidates, main_metric(report))


def describe_first_form(tried: int) -> str:
    """Return what the figure of a form is worth that was made until one met a limit on the held-out records.

    >>> describe_first_form(3)
    'the first of 3 forms that met max_degradation on the held-out records, so its figure is optimistic'
    """
    return f"the first of {tried} forms that met max_degradation on the held-out records, so its figure is optimistic"


def expected_main_metric(metrics: Sequence[str], *, has_classes: bool) -> str:
    """Return the main metric of an evaluation with these metrics of the user, from what is known of the labels.

    >>> expected_main_metric([], has_classes=True), expected_main_metric(["module:mean_iou"], has_classes=True)
    ('accuracy', 'mean_iou')
    """
    if metrics:
        return user_metric(metrics[0])
    return mean_metrics(CLASSIFICATION if has_classes else REGRESSION)[0].name


def check_goals(goals: Sequence[str], split: str, records: int, quality_is_share: bool) -> None:
    """Refuse goals on shares that the records of the split cannot show for a model that answers as the baseline does.

    Raises:
        ComponentError: With the number of records that a goal needs.
    """
    for goal in read_goals(goals):
        is_share = quality_is_share if goal.metric == QUALITY else formatting.is_share(goal.metric)
        loss = {"max_degradation": goal.number, "threshold": 1 - goal.number}.get(goal.kind)  # that is left to chance
        if loss is None or not is_share or "[" in goal.metric or smallest_visible_loss(records, 1) <= loss:
            continue
        visible = 100 * smallest_visible_loss(records, 1)
        declare = "; for a number to predict, store the label as float32 (columns=NAME:float32)"
        value = declare if goal.metric == QUALITY else ""
        raise ComponentError(
            f"goal {goal.text!r}, and {records:,} records in split {split!r}: without a single difference, they "
            f"exclude a loss of {visible:.1f} points at best",
            f"at least {records_needed(loss, 1):,} records for this goal, more for several candidates",
            f"give more data or a larger weight of {split!r} in splits, allow a loss of more than {visible:.1f} "
            f"points, or pass confidence={ESTIMATE}, which proves nothing{value}",
        )
