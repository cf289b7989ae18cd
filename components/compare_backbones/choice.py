"""Which backbone: the best at the objective among those that meet the goals, and what is said of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt import formatting as wording
from tfopt.components.compare_backbones.entry import Entry
from tfopt.components.compare_backbones.guessing import learnt_nothing
from tfopt.components.compare_backbones.request import SPEED, Question
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, resolve_goals
from tfopt.measurement.model_measurements import ModelMeasurements, main_metric
from tfopt.measurement.ranking import non_dominated


@dataclass(frozen=True)
class Choice:
    """What was decided.

    Attributes:
        entry: The chosen one.
        measured: Every backbone that was measured, by name.
        reasons: For each backbone, what speaks against it; empty for one that meets the goals.
        front: Names on the Pareto front.
        metric: What stands for quality; None where nothing was learnt.
        reason: The decision in a sentence.
    """

    entry: Entry
    measured: Mapping[str, ModelMeasurements]
    reasons: Mapping[str, list[str]]
    front: set[str]
    metric: str | None
    reason: str


def too_costly(entry: Entry, asked: Question) -> list[str]:
    """Which thresholds a backbone misses before it has learnt anything."""
    if entry.fastest is None:
        return [entry.error or "not measured"]
    measured = _measured(entry, None)
    costs = [
        goal for goal in asked.goals if goal.metric in SPEED
    ]  # those that compare wait for the one that learns best
    return _failures(costs, measured, asked, 0)


def choose(entries: Sequence[Entry], asked: Question, judged: Mapping[str, Any]) -> Choice:
    """Choose one; the one that misses the fewest goals when none meets them all.

    Args:
        entries: All of them, with what was found.
        asked: The goals and the objective.
        judged: What the quality was judged on; empty where nothing was learnt.

    Raises:
        ComponentError: When no backbone could be measured.
    """
    there = [entry for entry in entries if entry.fastest]
    if not there:
        said = "; ".join(f"{entry.name}: {entry.error}" for entry in entries)
        raise ComponentError(
            f"no backbone could be measured: {said}", "one that can", "see the reason of the first; allow more minutes"
        )
    best = next((entry for entry in there if entry.quality and entry.name == judged.get("best")), None)
    parent = _measured(best, None) if best else None
    measured = {entry.name: parent if entry is best and parent else _measured(entry, parent) for entry in there}
    metric = main_metric({"models": [best.quality]}) if best else None
    goals = _goals(asked, metric, measured.values())
    reasons = {entry.name: _against(entry, measured, goals, asked, judged) for entry in entries}
    objective = metric if asked.objective == QUALITY else asked.objective
    ranked = sorted(there, key=lambda one: _rank(one, reasons[one.name], _cost(measured[one.name], objective)))
    front = non_dominated(
        {name: _merits(one, metric) for name, one in measured.items() if metric is None or metric in one.metrics}
    )
    reason = _reason(ranked[0], measured, reasons, metric, best) + _warning(entries, metric)
    return Choice(ranked[0], measured, reasons, front, metric, reason)


def _measured(entry: Entry, parent: ModelMeasurements | None) -> ModelMeasurements:
    """As goals see it. The benchmark's own ratios compare with another backbone than the goals do."""
    kind = entry.fastest or ""
    return ModelMeasurements(entry.name, "", kind, entry.quality, {**entry.speed[kind], "speedup": {}}, parent)


def _goals(asked: Question, metric: str | None, measured: Any) -> list[Goal]:
    """Those that can be judged: without a main metric only those on costs."""
    if metric is None:
        return [goal for goal in asked.goals if goal.metric in SPEED]
    return resolve_goals(asked.goals, metric, {name: None for one in measured for name in one.metrics})


def _against(
    entry: Entry,
    measured: Mapping[str, ModelMeasurements],
    goals: Sequence[Goal],
    asked: Question,
    judged: Mapping[str, Any],
) -> list[str]:
    if entry.error:
        return [entry.error]
    if entry.untrained:
        return [f"not trained: {entry.untrained}"]
    examples = judged["counts"]["evaluated"] if judged else 0
    return _failures(goals, measured[entry.name], asked, examples)


def _failures(goals: Sequence[Goal], measured: ModelMeasurements, asked: Question, examples: int) -> list[str]:
    found = (goal.failure(measured, proven=asked.proven, examples=examples) for goal in goals)
    return [failure for failure in found if failure]


def _rank(entry: Entry, reasons: Sequence[str], cost: tuple[bool, float, float]) -> tuple[Any, ...]:
    """Those that meet the goals first, then those of which it is known what they learn."""
    return bool(reasons), bool(entry.untrained), len(reasons), cost


def _cost(measured: ModelMeasurements, objective: str | None) -> tuple[bool, float, float]:
    """What is made small; without what was asked for, the latency."""
    if objective is None or objective not in measured.metrics:
        return True, measured.value("latency"), measured.value("size")
    sign = -1 if measured.higher_is_better(objective) else 1
    return False, sign * measured.value(objective), measured.value("size")


def _merits(measured: ModelMeasurements, metric: str | None) -> tuple[float, ...]:
    costs = -measured.value("latency"), -measured.value("size")
    if metric is None:
        return costs
    sign = 1 if measured.higher_is_better(metric) else -1
    return (sign * measured.value(metric), *costs)


def _reason(
    chosen: Entry,
    measured: Mapping[str, ModelMeasurements],
    reasons: Mapping[str, list[str]],
    metric: str | None,
    best: Entry | None,
) -> str:
    found = measured[chosen.name]
    said = [f"{wording.amount('latency', found.value('latency'))} in {found.format.replace('_', ' ')}"]
    if metric and metric in found.metrics:
        learnt = f"{wording.title(metric)} {wording.amount(metric, found.value(metric))} after the short training"
        if best and best is not chosen:
            learnt += f" ({wording.change(metric, found.change(metric).value)} against {best.name})"
        said.append(learnt)
    said.append(wording.data_size(found.value("size")))
    text = f"{chosen.name}: {', '.join(said)}"
    if metric is None:
        text += "; what it learns is not known"
    if reasons[chosen.name]:
        text += f". No backbone meets every goal; this one misses the fewest: {'; '.join(reasons[chosen.name])}"
    return f"{text}."


def _warning(entries: Sequence[Entry], metric: str | None) -> str:
    without = learnt_nothing([entry.quality for entry in entries if entry.quality], metric) if metric else None
    if without is None:
        return ""
    amount = wording.amount(str(metric), without)
    return (
        f" No backbone is proven to have learnt more than guessing the same for every image, which has "
        f"{wording.title(str(metric))} {amount}: its quality says nothing yet; train for more epochs, on more records."
    )
