"""Measure the cost of untrained backbones: operations, size, and latency in each runtime."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Benchmark, Examples, Model
from tfopt.artifacts.benchmark_report import ModelBenchmark
from tfopt.artifacts.comparison_report import FailedMeasurement
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.candidate import Candidate, measure_together, summarize_error
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.components.compare_backbones.untrained_models import build_model, export_model, input_examples
from tfopt.errors import ComponentError

MAX_MODELS = 6  # measured at the same time, each in a process with its runtime

log = logging.getLogger(__name__)


def measure_costs(
    candidates: Sequence[Candidate], resolved: ResolvedSettings, examples: Examples | None, budget: Budget
) -> dict[str, Any]:
    """Inspect and benchmark each candidate, and return the fingerprint of the machine."""
    models: dict[str, dict[str, Path]] = {name: {} for name in resolved.formats}
    for number, candidate in enumerate(candidates, 1):
        log.info("[%d/%d, %s] %s: building and exporting", number, len(candidates), budget, candidate.name)
        _build_and_export(candidate, resolved, examples, models, budget)
    environment: dict[str, Any] = {}
    for format_name, paths in models.items():
        exported = [candidate for candidate in candidates if candidate.name in paths]
        for start in range(0, len(exported), MAX_MODELS):
            group = exported[start : start + MAX_MODELS]
            names = ", ".join(candidate.name for candidate in group)
            log.info("[%s] measuring in %s: %s", budget, format_name, names)
            environment = _benchmark(group, format_name, paths, resolved, examples, budget) or environment
    for candidate in candidates:
        if not candidate.error and candidate.fastest_format is None:
            candidate.error = "; ".join(f"{name}: {row.error}" for name, row in candidate.benchmarks.items())
    return environment


def _build_and_export(
    candidate: Candidate,
    resolved: ResolvedSettings,
    examples: Examples | None,
    models: dict[str, dict[str, Path]],
    budget: Budget,
) -> None:
    try:
        candidate.inspection = build_model(candidate.module, resolved, examples, candidate.folder, budget)
    except ComponentError as error:
        candidate.error = summarize_error(error)
        log.info("%s could not be built: %s", candidate.name, candidate.error)
        return
    for format_name, paths in models.items():
        try:
            paths[candidate.name] = export_model(candidate.folder, format_name, examples, budget)
        except ComponentError as error:
            candidate.benchmarks[format_name] = FailedMeasurement(summarize_error(error))
            log.info("%s: no %s: %s", candidate.name, format_name, summarize_error(error))


def _benchmark(
    candidates: Sequence[Candidate],
    format_name: str,
    paths: Mapping[str, Path],
    resolved: ResolvedSettings,
    examples: Examples | None,
    budget: Budget,
) -> dict[str, Any]:
    environment: dict[str, Any] = {}
    measure = _benchmark_function(format_name, paths, resolved, examples, budget, environment)
    rows = measure_together(candidates, measure)
    for candidate in candidates:
        row = rows[candidate.name]
        candidate.benchmarks[format_name] = FailedMeasurement(row) if isinstance(row, str) else row
    return environment


def _benchmark_function(
    format_name: str,
    paths: Mapping[str, Path],
    resolved: ResolvedSettings,
    examples: Examples | None,
    budget: Budget,
    environment: dict[str, Any],
) -> Callable[[Sequence[Candidate]], Sequence[ModelBenchmark]]:
    """Return a function that benchmarks candidates and updates ``environment``."""

    def measure(candidates: Sequence[Candidate]) -> Sequence[ModelBenchmark]:
        budget.remaining_seconds()
        models = [Model(paths[candidate.name]) for candidate in candidates]
        folder = candidates[0].folder / f"benchmark {format_name}"
        find("benchmark")(
            baseline=models[0],
            candidates=models[1:] or models,  # a single model is compared with itself
            benchmark=folder,
            examples=input_examples(candidates[0].folder, examples),
            batch_sizes=["1"],
            seconds=resolved.settings.seconds,
            threads=resolved.settings.threads,
            seed=resolved.settings.seed,
        )
        report = Benchmark(folder).load()
        environment.update(report.environment)
        return report.models[: len(models)]

    return measure
