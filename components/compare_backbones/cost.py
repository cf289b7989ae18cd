"""Measure the cost of untrained backbones: operations, size, and latency in each runtime."""

import logging
import time
from collections.abc import Sequence

from tfopt.artifacts import Benchmark, Examples, Model
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.candidate import Candidate, measure_together, summarize_error
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.components.compare_backbones.untrained_models import build_model, export_model
from tfopt.errors import ComponentError
from tfopt.reports.benchmark_report import ModelBenchmark
from tfopt.reports.comparison_report import FailedMeasurement
from tfopt.value_types import JsonObject

MAX_MODELS = 6  # measured at the same time, each in a process with its runtime
BUILD_SHARE = 0.25  # of the remaining budget, after which a group is measured with the candidates that it has

log = logging.getLogger(__name__)


def measure_costs(
    candidates: Sequence[Candidate], resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> JsonObject:
    """Inspect and benchmark each candidate, and return the fingerprint of the machine.

    Candidates are measured in groups, interleaved, so that changes of the machine's speed affect all of them alike. A
    group is measured before the next one is built: with a small budget, some candidates are measured completely.
    """
    environment: JsonObject = {}
    start = 0
    while start < len(candidates):
        group = _build_group(candidates, start, resolved, examples, budget)
        start += len(group)
        for format_name in resolved.formats:
            exported = [candidate for candidate in group if format_name in candidate.models]
            if exported:
                names = ", ".join(candidate.name for candidate in exported)
                log.info("[%s] measuring in %s: %s", budget, format_name, names)
                environment = _benchmark(exported, format_name, resolved, examples, budget) or environment
    for candidate in candidates:
        if not candidate.error and candidate.fastest_format is None:
            candidate.error = "; ".join(f"{name}: {row.error}" for name, row in candidate.benchmarks.items())
    return environment


def _build_group(
    candidates: Sequence[Candidate], start: int, resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> list[Candidate]:
    """Build and export the next candidates: as many as are measured together, or fewer if the budget is small."""
    started, group = time.monotonic(), []
    for number, candidate in enumerate(candidates[start : start + MAX_MODELS], start + 1):
        log.info("[%d/%d, %s] %s: building and exporting", number, len(candidates), budget, candidate.name)
        _build_and_export(candidate, resolved, examples, budget)
        group.append(candidate)
        elapsed, has_models = time.monotonic() - started, any(candidate.models for candidate in group)
        if has_models and (budget.is_spent or elapsed > BUILD_SHARE * budget.remaining_seconds()):
            break
    return group


def _build_and_export(candidate: Candidate, resolved: ResolvedSettings, examples: Examples, budget: Budget) -> None:
    try:
        candidate.inspection = build_model(candidate.module, resolved, examples, candidate.folder, budget)
    except ComponentError as error:
        candidate.error = summarize_error(error)
        log.info("%s could not be built: %s", candidate.name, candidate.error)
        return
    for format_name in resolved.formats:
        try:
            candidate.models[format_name] = export_model(candidate.folder, format_name, examples, budget)
        except ComponentError as error:
            candidate.benchmarks[format_name] = FailedMeasurement(summarize_error(error))
            log.info("%s: no %s: %s", candidate.name, format_name, summarize_error(error))


def _benchmark(
    candidates: Sequence[Candidate], format_name: str, resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> JsonObject:
    environment: JsonObject = {}

    def measure(candidates: Sequence[Candidate]) -> Sequence[ModelBenchmark]:
        budget.remaining_seconds()
        models = [Model(candidate.models[format_name]) for candidate in candidates]
        folder = candidates[0].folder / f"benchmark {format_name}"
        find("benchmark")(
            baseline=models[0],
            candidates=models[1:] or models,  # a single model is compared with itself
            benchmark=folder,
            examples=examples,
            batch_sizes=["1"],
            seconds=resolved.settings.seconds,
            threads=resolved.settings.threads,
            seed=resolved.settings.seed,
        )
        report = Benchmark(folder).load()
        environment.update(report.environment)
        return report.models[: len(models)]

    rows = measure_together(candidates, measure)
    for candidate in candidates:
        row = rows[candidate.name]
        candidate.benchmarks[format_name] = FailedMeasurement(row) if isinstance(row, str) else row
    return environment
