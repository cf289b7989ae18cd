"""Cheap signs that a model will miss a goal, looked at before anything is measured: its size, and a few answers."""

from collections.abc import Sequence

from tfopt import formatting as wording
from tfopt.artifacts import Model
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import from_sizes

SIZES = ("size", "size_gzipped")
Z = 1.96  # of a 95 % interval
BROKEN = 0.5  # 1 - correlation, or the share of changed classes, that no goal would allow


def too_large(child: Model, parent: Model, goals: Sequence[Goal]) -> str | None:
    """Which goal on the size a model misses; sizes are exact, so this is no guess."""
    after = from_sizes(child, from_sizes(parent, None))
    found = (goal.failure(after, proven=True, examples=0) for goal in goals if goal.metric in SIZES)
    return next((failure for failure in found if failure), None)


def too_different(
    changed: int, records: int, apart: float, goals: Sequence[Goal], main_metric: str | None
) -> str | None:
    """Why so many changed answers cannot be what the goals allow.

    Accuracy falls by at most the share of records whose class changes, and of a good parent nearly by that much. A
    model is given up when even the low end of the interval of that share is twice what the goal allows; nearer to it
    only `evaluate` can tell.

    Args:
        changed: Records whose class changed.
        records: Records compared.
        apart: 1 - the correlation of the worst output.
        goals: Settled.
        main_metric: Of the evaluation; None before the first. Changed classes count where it is a share of records.
    """
    if apart > BROKEN:
        return f"correlation {1 - apart:.2f} with the parent on {records} records"
    if main_metric is None or not wording.is_share(main_metric):
        return None
    allowed = [2 * goal.number for goal in goals if goal.kind == "max_degradation" and goal.metric == main_metric]
    least = lowest_share(changed, records)
    if least <= min(allowed, default=BROKEN):
        return None
    return f"{changed} of {records} records change their class: at least {least:.1%}, twice what the goal allows"


def lowest_share(count: int, of: int) -> float:
    """The low end of Wilson's 95 % interval of a share.

    >>> round(lowest_share(10, 64), 3), lowest_share(0, 64)
    (0.087, 0.0)
    """
    share = count / of
    middle = share + Z * Z / (2 * of)
    half = Z * ((share * (1 - share) + Z * Z / (4 * of)) / of) ** 0.5
    return max(0.0, (middle - half) / (1 + Z * Z / of)) if count else 0.0
