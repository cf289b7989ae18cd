"""Parse the goals of a replay: those of `tfopt.measurement.goals`, and ``max`` for a limit."""

import math
from collections.abc import Sequence
from dataclasses import replace

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.goals import GRAMMAR, KINDS, Goal, read_goals, slice_of

DISAGREEMENT, LIMIT = "disagreement", "max"
LATENCIES = {"p50": "latency", "p90": "latency_p90", "p99": "latency_p99"}  # by the name in goals, as in other reports


def read_replay_goals(texts: Sequence[str]) -> list[Goal]:
    """Parse goals; a limit becomes a threshold.

    >>> [goal.number for goal in read_replay_goals(["disagreement max 0.5%", "p99 max_regression 10%"])]
    [0.005, 0.1]

    Raises:
        ComponentError: If a goal does not follow the grammar, is on another metric, or makes no sense.
    """
    return [_parse(text.strip()) for text in texts]


def _parse(text: str) -> Goal:
    match = GRAMMAR.fullmatch(text)
    if not match:
        fix = "write the goal in this form"
        raise ComponentError(f"goal {text!r}", f"METRIC {'|'.join((LIMIT, *KINDS))} NUMBER", fix)
    metric, kind, digits, percent = match.groups()
    parts = slice_of(metric)
    name = parts[0] if parts else metric
    names = [DISAGREEMENT, *LATENCIES]
    if name not in (*names, *LATENCIES.values()):
        raise ComponentError(f"goal {text!r}", f"a metric of a replay: {', '.join(names)}", nearest(name, names))
    if kind not in (LIMIT, *KINDS):
        raise ComponentError(f"goal {text!r}", f"one of {', '.join((LIMIT, *KINDS))}", nearest(kind, [LIMIT, *KINDS]))
    if name != DISAGREEMENT and parts:
        raise ComponentError(f"goal {text!r}", "a goal on the latency of all requests", f"write {name} {kind} {digits}")
    if name == DISAGREEMENT and kind not in (LIMIT, "threshold"):
        expected = "a limit: the disagreement is already a comparison with the served version"
        raise ComponentError(f"goal {text!r}", expected, f"write {metric} {LIMIT} {digits}{percent}")
    if name != DISAGREEMENT and kind == LIMIT and percent:
        expected = "a limit in milliseconds, or a share of the served version's latency"
        raise ComponentError(f"goal {text!r}", expected, f"write {name} max_degradation {digits}%")
    own = replace(_read(text, metric, kind, digits, percent), text=text)
    return replace(own, metric=LATENCIES.get(name, metric))


def _read(text: str, metric: str, kind: str, digits: str, percent: str) -> Goal:
    if kind not in (LIMIT, "threshold") or not percent:
        return read_goals([f"{metric} threshold {digits}{percent}" if kind == LIMIT else text])[0]
    try:
        share = float(digits) / 100
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise ComponentError(f"goal {text!r}", "a number from 0% to less than 100%", f"write {metric} {LIMIT} 0.5%")
    return read_goals([f"{metric} threshold {share!r}"])[0]
