"""Whether anything was learnt: more than is right without a look at the image."""

from collections.abc import Mapping, Sequence
from typing import Any


def learnt_nothing(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """What `metric` is without a look, where it is not proven of any model that its own is higher; else None.

    Args:
        rows: Of ``evaluation.json``, judged on the same records.
        metric: What stands for quality.
    """
    without = _without_a_look(rows[0], metric)
    if without is None or any(row["metrics"][metric]["low"] > without for row in rows):
        return None
    return without


def _without_a_look(row: Mapping[str, Any], metric: str) -> float | None:
    """Of accuracy the share of the commonest class, of AUC a half; None for what is small when it is good.

    >>> _without_a_look({"confusion": [[30, 20], [1, 9]]}, "accuracy")
    0.8333333333333334
    """
    if metric == "accuracy" and row["confusion"]:
        records = [sum(labels) for labels in row["confusion"]]
        return float(max(records) / sum(records))
    return 0.5 if metric == "auc" else None
