"""Compute what a number of records can show about a share, before any model is measured."""

from collections.abc import Sequence

from tfopt import formatting
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import records_needed, smallest_visible_loss
from tfopt.measurement.goals import QUALITY, Goal, read_goals

ESTIMATE = "estimate"  # the value of `confidence` that compares measured values, without intervals


def describe_visible_loss(records: int, candidates: int) -> str:
    """Return what the records can show at best, in a sentence.

    >>> describe_visible_loss(62, 1)
    '62 records cannot exclude a loss of less than 5.78 points of accuracy, even if no record differs'
    """
    points = formatting.distance("accuracy", smallest_visible_loss(records, candidates))
    among = f" in any of {candidates} candidates" if candidates > 1 else ""
    return (
        f"{records:,} records cannot exclude a loss of less than {points} of accuracy{among}, even if no record differs"
    )


def check_goals(goals: Sequence[str], split: str, records: int, quality_is_share: bool) -> None:
    """Refuse goals on shares that the records cannot show for a single model that answers as the baseline does.

    Args:
        goals: The goals of `select_model`.
        split: Name of the split that the models will be evaluated on.
        records: Number of its records.
        quality_is_share: True if "quality" is a share of records.

    Raises:
        ComponentError: With the number of records that a goal needs.
    """
    for goal in read_goals(goals):
        share = quality_is_share if goal.metric == QUALITY else formatting.is_share(goal.metric)
        is_slice = "[" in goal.metric
        loss = _allowed_loss(goal) if share and not is_slice else None
        if loss is None or smallest_visible_loss(records, 1) <= loss:
            continue
        visible = 100 * smallest_visible_loss(records, 1)
        raise ComponentError(
            f"goal {goal.text!r}, and {records:,} records in split {split!r}: without a single difference, they "
            f"exclude a loss of {visible:.1f} points at best",
            f"at least {records_needed(loss, 1):,} records for this goal, more for several candidates",
            f"give more data or a larger weight of {split!r} in splits, allow a loss of more than {visible:.1f} "
            f"points, or pass confidence={ESTIMATE}, which proves nothing",
        )


def _allowed_loss(goal: Goal) -> float | None:
    """Return the loss that a goal leaves to chance; None if the goal has no such limit."""
    if goal.kind == "max_degradation":
        return goal.number
    return 1 - goal.number if goal.kind == "threshold" else None
