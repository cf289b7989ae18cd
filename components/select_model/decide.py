"""Decide between models from the reports of `evaluate` and `benchmark`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial

from tfopt import formatting
from tfopt.artifacts import Model, unique_names
from tfopt.components.select_model import reasons
from tfopt.components.select_model.conversion_warnings import conversion_warnings, uncleared
from tfopt.components.select_model.parameters import Criteria
from tfopt.components.select_model.regressions import compare_with_history
from tfopt.errors import ComponentError
from tfopt.measurement.goals import QUALITY, Goal, read_goals, resolve_goals
from tfopt.measurement.metric_names import check_load_metric
from tfopt.measurement.model_measurements import ModelMeasurements, Row, find_row, join_reports, main_metric
from tfopt.measurement.pareto import pareto_front
from tfopt.measurement.significance import is_indistinguishable, is_significantly_better
from tfopt.model_store.run_history import WINNER, RunHistory, RunRecord, measurement_conditions
from tfopt.reports.benchmark_report import BenchmarkReport
from tfopt.reports.decision_report import ConstantRow, DecisionReport, ModelDecision
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.serving.layouts import find_misfit
from tfopt.serving.policy import Policy, read_policies


def decide(
    models: Sequence[Model],
    evaluation: EvaluationReport,
    benchmark: BenchmarkReport,
    criteria: Criteria,
    runs: Sequence[RunRecord],
) -> tuple[Model, DecisionReport]:
    """Select one of the models, the baseline first, and return it with the report; ``runs`` are the last blessed ones.

    Raises:
        ComponentError: If a report does not contain a model, or a goal's metric was not measured.
    """
    names = unique_names(list(models))
    measured = _join(models, names, evaluation, benchmark)
    baseline, quality = measured[0], main_metric(evaluation)
    _check_baseline(baseline, quality)
    conditions = measurement_conditions(evaluation, benchmark)
    history = RunHistory(runs, conditions)
    resolve = _goal_resolver(baseline, quality, criteria)
    goals = resolve(read_goals(criteria.goals), past=partial(history.reference, WINNER))
    objective = quality if criteria.objective == QUALITY else criteria.objective
    if objective not in baseline.metrics:
        text = f"a benchmark in which the baseline has {formatting.title(objective)}"
        check_load_metric(objective, _load_parameters(benchmark), f"objective={objective}")
        fix = "pass a larger max_p99_ms to benchmark, which the baseline can meet at some rate"
        raise ComponentError(f"objective={objective}, which {baseline.name} does not have", text, fix)
    warnings, policies = conversion_warnings(models, names), read_policies(criteria.destination)
    failures = {
        model.name: _failures(artifact, model, goals, criteria, evaluation, warnings[model.name], policies)
        for model, artifact in zip(measured, models, strict=True)
    }
    passed = {model.name for model in measured if not model.error and not failures[model.name]}
    chosen = choose(measured, passed, objective)
    explain = reasons.Explanation(
        *(chosen, objective, quality, goals, criteria.confidence == "interval"),
        baseline_passed=baseline.name in passed,
        min_effect=float(benchmark.interval["min_effect"]),
    )
    front = pareto_front(measured, quality)
    decisions = [
        _decision(artifact, model, explain, failures[model.name], warnings[model.name], front)
        for model, artifact in zip(measured, models, strict=True)
    ]
    report = DecisionReport(
        selected=chosen.name,
        blessed=chosen.name in passed,
        reason=explain.verdict(measured, blessed=chosen.name in passed, warned=bool(warnings[chosen.name])),
        objective=criteria.objective,
        goals=list(criteria.goals),
        confidence=criteria.confidence,
        layout=criteria.layout,
        watch=list(criteria.watch),
        models=decisions,
        conditions=conditions,
        history=compare_with_history(history, chosen, baseline, resolve(read_goals(criteria.watch))),
        selected_digest=chosen.digest,
        constant=constant_row(evaluation, quality),
        notes=list(evaluation.notes),
        unstable=[model.name for model in measured if model.disturbed_metrics],
        records=evaluation.counts.evaluated,
    )
    return models[names.index(chosen.name)], report


def _load_parameters(benchmark: BenchmarkReport) -> list[str]:
    """Return the names of the parameters of a load that a benchmark got."""
    return [name for name, value in asdict(benchmark.load).items() if value is not None] if benchmark.load else []


def choose(models: Sequence[ModelMeasurements], passed: Collection[str], objective: str) -> ModelMeasurements:
    """Choose one model; the baseline unless a candidate is significantly better.

    Candidates that are indistinguishable from the best at the objective are ranked by size. If the baseline misses a
    goal, a candidate that meets all goals need not be better than it. ``models`` has the baseline first, ``passed`` the
    names of the models that meet every goal.
    """
    baseline, *candidates = models
    eligible = [model for model in candidates if model.name in passed and objective in model.metrics]
    if baseline.name in passed:
        eligible = [model for model in eligible if is_significantly_better(model, objective)]
    if not eligible:
        return baseline
    if compared := [model for model in eligible if not model.disturbance(objective)]:
        eligible = compared
    else:  # speeds of a disturbed machine rank nothing
        return min(eligible, key=lambda model: (_sizes(model), model.digest, model.name))
    best = max(eligible, key=lambda model: (model.gain(objective).value, model.digest, model.name))
    equals = [model for model in eligible if is_indistinguishable(model, best, objective)]
    return min(equals, key=lambda model: (_sizes(model), -model.gain(objective).value, model.digest, model.name))


def _sizes(model: ModelMeasurements) -> tuple[float, float]:
    return model.value("size"), model.value("size_gzipped")


def _goal_resolver(baseline: ModelMeasurements, quality: str, criteria: Criteria) -> Callable[..., list[Goal]]:
    slices = list(baseline.evaluation.slices) if baseline.evaluation else []
    measured = partial(resolve_goals, main_metric=quality, measured=baseline.metrics, slices=slices)
    return partial(measured, slice_records=criteria.slice_records)


def _join(
    models: Sequence[Model], names: Sequence[str], evaluation: EvaluationReport, benchmark: BenchmarkReport
) -> list[ModelMeasurements]:
    for number, (name, model) in enumerate(zip(names, models, strict=True)):
        _check_row("evaluation", evaluation.models, name, model, is_baseline=number == 0)
        _check_row("benchmark", benchmark.models, name, model, is_baseline=number == 0)
    rows = [(name, model.digest, model.format) for name, model in zip(names, models, strict=True)]
    return join_reports(rows, evaluation, benchmark)


def constant_row(evaluation: EvaluationReport, metric: str) -> ConstantRow | None:
    """Return the constant model's row of the decision; None if it was not evaluated."""
    constant = evaluation.constant
    measured = constant and constant.metrics.get(metric)
    return ConstantRow(constant.name, metric, measured.value) if constant and measured else None


def _failures(
    artifact: Model,
    model: ModelMeasurements,
    goals: Sequence[Goal],
    criteria: Criteria,
    evaluation: EvaluationReport,
    warnings: Sequence[str],
    policies: Sequence[Policy],
) -> list[tuple[str, str]]:
    """List what a model misses, each as a metric, or what stands for one, and the explanation."""
    examples, candidates = evaluation.counts.evaluated, evaluation.interval.candidates
    failures: list[tuple[str, str | None]] = []
    if not model.error and (misfit := find_misfit(artifact, criteria.layout)):
        failures.append((reasons.LAYOUT, f"layout={criteria.layout} cannot hold {misfit}"))
    if not model.error:
        failures += [(reasons.POLICY, policy.failure(model.format, evaluation.counts.evaluated)) for policy in policies]
    explain = partial(Goal.failure, proven=criteria.confidence == "interval", examples=examples, candidates=candidates)
    failures += [(goal.metric, explain(goal, model)) for goal in goals]
    if criteria.better_than_constant and evaluation.constant and not model.error:
        better = reasons.no_better_than_constant(model, main_metric(evaluation), evaluation.constant)
        failures.append((reasons.CONSTANT, better))
    failures.append((reasons.CONVERSION, uncleared(model, warnings, goals, examples)))
    return [(metric, failure) for metric, failure in failures if failure]


def _decision(
    artifact: Model,
    model: ModelMeasurements,
    explain: reasons.Explanation,
    failures: Sequence[tuple[str, str]],
    warnings: list[str],
    front: Collection[str],
) -> ModelDecision:
    not_made = artifact.failure
    return ModelDecision(
        name=model.name,
        digest=model.digest,
        format=model.format,
        parent=model.baseline is None,
        passed=not model.error and not failures,
        pareto=model.name in front,
        chosen=model is explain.chosen,
        reasons=[f"not made: {not_made}"] if not_made else explain.reasons(model, failures),
        disturbed=model.disturbed_metrics,
        metrics={metric: estimate.value for metric, estimate in model.metrics.items()},
        missed_by=explain.missed_by(model, failures),
        summary="not made" if not_made else explain.summary(model, failures),
        warnings=warnings,
    )


def _check_row(title: str, rows: Sequence[Row], name: str, model: Model, *, is_baseline: bool) -> None:
    row = find_row(rows, model.digest, name)
    if row is None:
        measured = ", ".join(f"{other.name} ({other.digest[:12]})" for other in rows)
        received = f"{name} ({model.uri}, digest {model.digest[:12]}) is not in the {title}"
        fix = f"give the same models to evaluate, benchmark and select_model; if {name} changed, measure it again"
        raise ComponentError(received, f"one of the models measured there: {measured}", fix)
    if is_baseline and row.digest != rows[0].digest:
        received = f"baseline {name}: the {title} compares with {rows[0].name}"
        expected = "the baseline that everything was compared with"
        raise ComponentError(received, expected, f"pass baseline={rows[0].name}, or measure again with baseline={name}")


def _check_baseline(baseline: ModelMeasurements, quality: str) -> None:
    missing = [metric for metric in (quality, "latency", "size") if metric not in baseline.metrics]
    if baseline.error or missing:
        received = f"the baseline {baseline.name}: {baseline.error or ', '.join(missing) + ' not measured'}"
        expected = "a baseline that was evaluated and benchmarked, because every candidate is compared with it"
        raise ComponentError(received, expected, "fix the reported problem, and measure again")
