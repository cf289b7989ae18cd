"""Select the backbone that is best at the objective among those that meet the goals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfopt import formatting
from tfopt.components.compare_backbones.candidate import Candidate
from tfopt.components.compare_backbones.resolved_settings import COSTS, ResolvedSettings
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, resolve_goals
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.pareto import non_dominated
from tfopt.reports.comparison_report import ShortTraining
from tfopt.reports.evaluation_report import ModelEvaluation


@dataclass(frozen=True)
class Choice:
    """The selected backbone, and the reasons."""

    candidate: Candidate
    measurements: Mapping[str, ModelMeasurements]  # by name, of candidates that were measured
    reasons: Mapping[str, list[str]]  # by name: the goals that it misses, or its error
    front: set[str]  # names on the Pareto front
    metric: str | None  # of quality; None if nothing was trained
    reason: str  # the decision as a sentence


def missed_cost_goals(candidate: Candidate, resolved: ResolvedSettings) -> list[str]:
    """Return the cost goals that a candidate misses before training, or its error."""
    if candidate.benchmark is None:
        return [candidate.error or "not measured"]
    # other goals on costs compare with the best candidate, which is known only after training
    goals = [goal for goal in resolved.goals if goal.metric in COSTS]
    return _missed_goals(goals, _join_measurements(candidate, None), resolved, None)


def select_backbone(
    candidates: Sequence[Candidate], resolved: ResolvedSettings, training: ShortTraining | None
) -> Choice:
    """Select a candidate; if none meets all goals, one that misses the fewest. Without training only costs count.

    Raises:
        ComponentError: If no candidate could be measured.
    """
    measured = [candidate for candidate in candidates if candidate.benchmark]
    if not measured:
        errors = "; ".join(f"{candidate.name}: {candidate.error}" for candidate in candidates)
        received = f"no backbone could be measured: {errors}"
        expected = "at least one backbone that can be measured"
        raise ComponentError(received, expected, "correct the first error; allow more minutes")
    evaluated = {candidate.name: candidate for candidate in measured if candidate.evaluation}
    best = evaluated.get(training.best) if training else None
    baseline = _join_measurements(best, None) if best else None
    measurements = {
        candidate.name: baseline if candidate is best and baseline else _join_measurements(candidate, baseline)
        for candidate in measured
    }
    metric = next(iter(best.evaluation.metrics)) if best and best.evaluation else None
    if metric is None:  # only goals on costs can be checked
        goals = [goal for goal in resolved.goals if goal.metric in COSTS]
    else:
        names = {name: None for row in measurements.values() for name in row.metrics}
        goals = resolve_goals(resolved.goals, metric, names)
    reasons = {
        candidate.name: _reasons_unmeasured(candidate)
        or _missed_goals(goals, measurements[candidate.name], resolved, training)
        for candidate in candidates
    }
    objective = metric if resolved.settings.objective == QUALITY else resolved.settings.objective

    def rank(candidate: Candidate) -> tuple[Any, ...]:
        """Sort candidates that meet the goals first, then trained ones, then the best at the objective."""
        missed, value = reasons[candidate.name], _objective_value(measurements[candidate.name], objective)
        return bool(missed), bool(candidate.untrained), len(missed), value

    ranked = sorted(measured, key=rank)
    merits = {
        name: _merits(row, metric) for name, row in measurements.items() if metric is None or metric in row.metrics
    }
    chosen = ranked[0]
    reason = _explain_choice(measurements[chosen.name], reasons[chosen.name], metric, best)
    reason += _warn_of_chance(candidates, metric)
    return Choice(chosen, measurements, reasons, non_dominated(merits), metric, reason)


def _join_measurements(candidate: Candidate, baseline: ModelMeasurements | None) -> ModelMeasurements:
    """Join a candidate's measurements for goals, without the speedup, which has another baseline."""
    benchmark = replace(candidate.benchmark, speedup={}) if candidate.benchmark else None
    return ModelMeasurements(
        candidate.name, "", candidate.fastest_format or "", candidate.evaluation, benchmark, baseline
    )


def _reasons_unmeasured(candidate: Candidate) -> list[str]:
    if candidate.error:
        return [candidate.error]
    return [f"not trained: {candidate.untrained}"] if candidate.untrained else []


def _missed_goals(
    goals: Sequence[Goal], measurements: ModelMeasurements, resolved: ResolvedSettings, training: ShortTraining | None
) -> list[str]:
    examples, candidates = (training.counts.evaluated, training.interval.candidates) if training else (0, 1)
    proven = resolved.settings.confidence == "interval"
    failures = (goal.failure(measurements, proven=proven, examples=examples, candidates=candidates) for goal in goals)
    return [failure for failure in failures if failure]


def _objective_value(measurements: ModelMeasurements, objective: str | None) -> tuple[bool, float, float]:
    """Return the value to minimize; the latency if the objective was not measured."""
    if objective is None or objective not in measurements.metrics:
        return True, measurements.value("latency"), measurements.value("size")
    sign = -1 if measurements.higher_is_better(objective) else 1
    return False, sign * measurements.value(objective), measurements.value("size")


def _merits(measurements: ModelMeasurements, metric: str | None) -> tuple[float, ...]:
    costs = -measurements.value("latency"), -measurements.value("size")
    if metric is None:
        return costs
    sign = 1 if measurements.higher_is_better(metric) else -1
    return (sign * measurements.value(metric), *costs)


def _explain_choice(row: ModelMeasurements, missed: Sequence[str], metric: str | None, best: Candidate | None) -> str:
    facts = [f"{formatting.amount('latency', row.value('latency'))} in {row.format.replace('_', ' ')}"]
    if metric and metric in row.metrics:
        quality = f"{formatting.title(metric)} {formatting.amount(metric, row.value(metric))} after the short training"
        if best and best.name != row.name:
            quality += f" ({formatting.change(metric, row.change(metric).value)} against {best.name})"
        facts.append(quality)
    facts.append(formatting.data_size(row.value("size")))
    text = f"{row.name}: {', '.join(facts)}"
    if metric is None:
        text += "; its quality is unknown"
    if missed:
        text += f". No backbone meets every goal; this one misses the fewest: {'; '.join(missed)}"
    return f"{text}."


def _warn_of_chance(candidates: Sequence[Candidate], metric: str | None) -> str:
    """Return a warning if no candidate is significantly better than constant predictions; else an empty text."""
    rows = [candidate.evaluation for candidate in candidates if candidate.evaluation]
    chance = _chance_level(rows[0], metric) if rows and metric else None
    if metric is None or chance is None or any(row.metrics[metric].low > chance for row in rows):
        return ""
    return (
        f" No backbone is proven to be better than constant predictions, which have {formatting.title(metric)} "
        f"{formatting.amount(metric, chance)}: the training was too short to compare the quality of backbones; "
        "train for more epochs, on more records."
    )


def _chance_level(row: ModelEvaluation, metric: str) -> float | None:
    """Return the metric of constant predictions; None for metrics without a known one.

    Accuracy is the share of the most frequent class (rows of the confusion matrix are classes), AUC is 0.5.
    """
    if metric == "accuracy" and row.confusion:
        records = [sum(counts) for counts in row.confusion]
        return float(max(records) / sum(records))
    return 0.5 if metric == "auc" else None
