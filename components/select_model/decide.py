"""From the models and the two reports on them to a decision, checked for being about the same models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tfopt.artifacts import Model, unique_names
from tfopt.components.select_model import reasons
from tfopt.components.select_model.choice import choose, pareto_front
from tfopt.components.select_model.counterfactuals import Stakes
from tfopt.components.select_model.regressions import trends
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, resolve_goals
from tfopt.measurement.model_measurements import ModelMeasurements, find_row, join_reports, main_metric
from tfopt.model_store.run_history import WINNER, RunHistory, measurement_conditions
from tfopt.serving.layouts import supports_format


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        goals: What a model must meet.
        objective: What to be best at.
        proven: Whether meeting a goal must be proven.
        watched: What is told when it is missed, and no more.
        runs: The last blessed runs, oldest first.
        layout: What the chosen one must fit into.
    """

    goals: Sequence[Goal]
    objective: str
    proven: bool
    watched: Sequence[Goal] = ()
    runs: Sequence[Mapping[str, Any]] = ()
    layout: str = "auto"


@dataclass(frozen=True)
class Verdict:
    """The chosen model, and the content of ``decision.json`` but for the digest of what is handed on."""

    chosen: Model
    content: dict[str, Any]


def decide(
    models: Sequence[Model], evaluation: Mapping[str, Any], benchmark: Mapping[str, Any], question: Question
) -> Verdict:
    """Decide between models, the parent first.

    Raises:
        ComponentError: When the reports and the models do not belong together, or a goal's metric was not measured.
    """
    names = unique_names(list(models))
    for number, (name, model) in enumerate(zip(names, models, strict=True)):
        for title, report in (("evaluation", evaluation), ("benchmark", benchmark)):
            _check_row(title, report, name, model, is_parent=not number)
    measured = join_reports(
        [(n, m.digest, m.format) for n, m in zip(names, models, strict=True)], evaluation, benchmark
    )
    quality = main_metric(evaluation)
    _check_parent(measured[0], quality)
    past = RunHistory(question.runs, measurement_conditions(evaluation, benchmark))
    goals = resolve_goals(question.goals, quality, measured[0].metrics, partial(past.reference, WINNER))
    objective = quality if question.objective == QUALITY else question.objective
    examples = int(evaluation["counts"]["evaluated"])
    unmade = {name: model.failure for name, model in zip(names, models, strict=True) if model.failure}
    unfit = {
        one.name: one.format for one in measured if not one.error and not supports_format(question.layout, one.format)
    }
    failures = {model.name: _failures(model, goals, question.proven, examples) for model in measured}
    for name, kind in unfit.items():
        failures[name].insert(0, ("layout", f"layout={question.layout} cannot hold {kind}"))
    passed = {model.name for model in measured if not model.error and not failures[model.name]}
    chosen = choose(measured, passed, objective)
    blessed = chosen.name in passed
    front = pareto_front(measured, quality)
    min_effect = float(benchmark["interval"]["min_effect"])
    stakes = Stakes(measured, passed, set(unfit), goals, objective, question.proven, min_effect)
    content = {
        "selected": chosen.name,
        "blessed": blessed,
        "reason": reasons.verdict(chosen, measured, objective, quality, blessed=blessed),
        "objective": question.objective,
        "goals": [goal.text for goal in question.goals],
        "confidence": "interval" if question.proven else "point",
        "layout": question.layout,
        "watch": [goal.text for goal in question.watched],
        "models": [
            {
                "name": model.name,
                "digest": model.digest,
                "format": model.format,
                "parent": model.parent is None,
                "passed": model.name in passed,
                "pareto": model.name in front,
                "chosen": model is chosen,
                "reasons": [f"not made: {unmade[model.name]}"]
                if model.name in unmade
                else _reasons(
                    model, chosen, failures[model.name], objective, quality, proof=measured[0].name in passed
                ),
                "to_win": stakes.to_win(model, chosen),
                "metrics": {metric: estimate.value for metric, estimate in model.metrics.items()},
            }
            for model in measured
        ],
        "conditions": past.conditions,
        "history": trends(past, chosen, measured[0], resolve_goals(question.watched, quality, measured[0].metrics)),
    }
    return Verdict(models[names.index(chosen.name)], content)


def _failures(model: ModelMeasurements, goals: Sequence[Goal], proven: bool, examples: int) -> list[tuple[str, str]]:
    """The metric of each goal that a model misses, and how it does."""
    found = ((goal.metric, goal.failure(model, proven=proven, examples=examples)) for goal in goals)
    return [(metric, failure) for metric, failure in found if failure]


def _reasons(
    model: ModelMeasurements,
    chosen: ModelMeasurements,
    failures: list[tuple[str, str]],
    objective: str,
    quality: str,
    *,
    proof: bool,
) -> list[str]:
    if model is not chosen:
        return reasons.not_chosen(model, chosen, failures, objective, proof=proof)
    if model.parent:
        return [reasons.merits(model, objective, quality)]
    return [said for _, said in failures] or ["the parent: nothing is proven better within the goals"]


def _check_row(title: str, report: Mapping[str, Any], name: str, model: Model, *, is_parent: bool) -> None:
    row = find_row(report["models"], model.digest, name)
    if row is None:
        known = ", ".join(f"{other['name']} ({other['digest'][:12]})" for other in report["models"])
        raise ComponentError(
            f"{name} ({model.uri}, digest {model.digest[:12]}) is not in the {title}",
            f"one of the models measured there: {known}",
            f"give the same models to evaluate, benchmark and select_model; if {name} changed, measure it again",
        )
    if is_parent and row["digest"] != report["models"][0]["digest"]:
        raise ComponentError(
            f"baseline {name}: the {title} compares with {report['baseline']}",
            "the parent that everything was compared with",
            f"pass baseline={report['baseline']}, or measure again with baseline={name}",
        )


def _check_parent(parent: ModelMeasurements, quality: str) -> None:
    missing = [metric for metric in (quality, "latency", "size") if metric not in parent.metrics]
    if parent.error or missing:
        raise ComponentError(
            f"the parent {parent.name}: {parent.error or ', '.join(missing) + ' not measured'}",
            "a parent that was evaluated and benchmarked, since everything is compared with it",
            "mend what is said there, and measure again",
        )
