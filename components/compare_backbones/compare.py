"""Comparison of backbones: write modules, measure costs, train those that meet the cost goals, select one."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.candidate import Budget, Candidate
from tfopt.components.compare_backbones.choice import Choice, missed_cost_goals, select_backbone
from tfopt.components.compare_backbones.cost import measure_costs, write_random_examples
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.components.compare_backbones.short_training import train_and_evaluate
from tfopt.keras_models.backbones import Backbone
from tfopt.reports.comparison_report import BackboneResult, ComparisonReport, ShortTraining

REPORTED_SETTINGS = ("task", "image", "label", "objective", "confidence", "threads", "seed", "minutes")

log = logging.getLogger(__name__)


def compare(resolved: ResolvedSettings, examples: Examples | None, folder: Path, chosen: Path) -> ComparisonReport:
    """Compare the backbones, write a module for each below ``folder`` and the selected one to ``chosen``."""
    budget = Budget(resolved.settings.minutes)
    for reason in resolved.unavailable.values():
        log.info("%s", reason)
    work = folder / ".work"  # in the output's folder, which is deleted if the component is interrupted
    candidates = [_add_candidate(backbone, resolved, folder, work) for backbone in resolved.backbones]
    measured_on = examples or write_random_examples(work / "examples", resolved)
    environment = measure_costs(candidates, resolved, measured_on, budget)
    training = None
    if examples:
        affordable = _filter_affordable(candidates, resolved)
        training = train_and_evaluate(affordable, resolved.settings, examples, budget, work)
    choice = select_backbone(candidates, resolved, training)
    shutil.copyfile(choice.candidate.module, chosen)
    shutil.rmtree(work)
    return build_report(resolved, candidates, training, choice, environment, folder)


def build_report(
    resolved: ResolvedSettings,
    candidates: Sequence[Candidate],
    training: ShortTraining | None,
    choice: Choice,
    environment: Mapping[str, Any],
    folder: Path,
) -> ComparisonReport:
    """Return the report; paths of modules are relative to ``folder``."""
    settings = {name: getattr(resolved.settings, name) for name in REPORTED_SETTINGS}
    return ComparisonReport(
        **settings,
        chosen=choice.candidate.name,
        reason=choice.reason,
        meets_goals=not choice.reasons[choice.candidate.name],
        classes=resolved.classes,
        stored_size=list(resolved.stored_size),
        input_size=list(resolved.input_size),
        goals=[goal.text for goal in resolved.goals],
        formats=resolved.formats,
        left_out=dict(resolved.unavailable),
        training=training,
        metric=choice.metric,
        backbones=[_result(candidate, choice, folder) for candidate in candidates],
        environment=dict(environment),
    )


def _add_candidate(backbone: Backbone, resolved: ResolvedSettings, folder: Path, work: Path) -> Candidate:
    """Write the module of a backbone and create the folder of its models."""
    module = folder / "modules" / file_name(backbone)
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(module_text(backbone, resolved), encoding="utf-8")
    models = work / module.stem
    models.mkdir(parents=True)
    return Candidate(backbone, module, models)


def _filter_affordable(candidates: Sequence[Candidate], resolved: ResolvedSettings) -> list[Candidate]:
    """Return the candidates that meet the cost goals, and record the reason for the others."""
    affordable = []
    for candidate in candidates:
        missed = missed_cost_goals(candidate, resolved)
        if missed:
            candidate.untrained = None if candidate.error else "; ".join(missed)
            log.info("%s is not trained: %s", candidate.name, "; ".join(missed))
        else:
            affordable.append(candidate)
    return affordable


def _result(candidate: Candidate, choice: Choice, folder: Path) -> BackboneResult:
    inspection, evaluation = candidate.inspection, candidate.evaluation
    reasons = choice.reasons[candidate.name]
    return BackboneResult(
        name=candidate.name,
        builder=candidate.backbone.builder,
        alpha=candidate.backbone.alpha,
        module=candidate.module.relative_to(folder).as_posix(),
        chosen=candidate is choice.candidate,
        passed=not reasons,
        reasons=reasons,
        pareto=candidate.name in choice.front,
        error=candidate.error,
        parameters=inspection.parameters.count if inspection else None,
        flops=inspection.flops.total if inspection else None,
        not_counted=inspection.flops.not_counted if inspection else {},
        fastest=candidate.fastest_format,
        runtimes=candidate.benchmarks,
        train_seconds=candidate.train_seconds,
        metrics=evaluation.metrics if evaluation else {},
        delta=evaluation.delta if evaluation else {},
    )
