"""Measurement of trial models with their baseline by `evaluate` and `benchmark`, and their score."""

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import formatting
from tfopt.artifacts import Benchmark, Decision, Evaluation, Examples, Model, PythonModule, unique_names
from tfopt.component import find
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.measurement.goals import QUALITY, Goal, read_goals, resolve_goals
from tfopt.measurement.metric_names import check_goal_metrics
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.measurement.significance import is_significantly_better
from tfopt.reports.decision_report import DecisionReport
from tfopt.reports.recipe_report import RelativeMetrics

MISSED_GOAL = 1.0  # added to the score for each missed goal: as much as half of the speed
GIVEN_UP, NOT_MADE = 8.0, 10.0  # scores of recipes that were not measured


@dataclass(frozen=True)
class TrialMeasurement:
    """The measurement of a trial's model."""

    measured: ModelMeasurements  # in both reports, with its baseline
    main_metric: str  # of the evaluation
    goals: Sequence[Goal]  # with metrics and numbers resolved
    objective: str  # the metric to optimize
    examples: int  # number of examples that it was evaluated on

    @property
    def failures(self) -> list[str]:
        """Return how it misses each goal that it misses; the error if it could not be measured."""
        if self.measured.error:
            return [self.measured.error]
        failures = (goal.failure(self.measured, proven=True, examples=self.examples) for goal in self.goals)
        return [failure for failure in failures if failure]

    @property
    def is_better(self) -> bool:
        """Return True if it is significantly better than its baseline at the objective."""
        if self.measured.error or self.objective not in self.measured.metrics:
            return False
        return is_significantly_better(self.measured, self.objective)

    @property
    def score(self) -> float:
        """Return the value to minimize: log2 of the objective over the baseline's, and a penalty per missed goal."""
        if self.measured.error or self.objective not in self.measured.metrics or not self.measured.baseline:
            return NOT_MADE
        before = self.measured.baseline.value(self.objective)
        after = before + self.measured.change(self.objective).value
        sign = -1 if self.measured.higher_is_better(self.objective) else 1
        return MISSED_GOAL * len(self.failures) + sign * math.log2(max(after, 1e-9) / max(before, 1e-9))

    @property
    def relative_metrics(self) -> RelativeMetrics | None:
        """Return quality, speed and size relative to the baseline; None if one of them was not measured."""
        model = self.measured
        speedup = None if model.error else model.speedup(model.small_batch)
        if speedup is None or self.main_metric not in model.metrics or not model.baseline:
            return None
        size = model.value("size") / max(1.0, model.baseline.value("size"))
        return RelativeMetrics(model.gain(self.main_metric).value, speedup.value, size)

    def describe(self) -> str:
        """Return the result in one line."""
        if self.measured.error:
            return f"could not be measured: {self.measured.error}"
        speedup = self.measured.speedup(self.measured.small_batch)
        speed = f"{formatting.ratio(speedup.value)} as fast ({speedup.verdict}), " if speedup else ""
        change = formatting.change(self.main_metric, self.measured.change(self.main_metric).value)
        goals = "meets the goals" if not self.failures else self.failures[0]
        return f"{speed}{formatting.title(self.main_metric)} {change}; {goals}"


class TrialMeasurer:
    """Measures models together with their baseline, and selects one, with the components that do so."""

    def __init__(
        self, baseline: Model, examples: Examples, settings: SearchSettings, module: PythonModule | None = None
    ) -> None:
        """Store the arguments; ``module`` is the user's file with metrics."""
        self.baseline, self.examples, self.settings, self.module = baseline, examples, settings, module
        self.goals = read_goals(settings.goals)
        check_goal_metrics(self.goals, task="auto", top_k=5, metrics=settings.metrics, slices=settings.slices)

    def measure(self, children: Sequence[Model], folder: Path, tried: int = 1) -> list[TrialMeasurement]:
        """Evaluate and benchmark models, which were selected from ``tried`` ones on the same records.

        The reports are stored in ``folder``. Raise ComponentError if the baseline cannot be measured, or examples,
        label or goals do not fit.
        """
        settings, models = self.settings, [self.baseline, *children]
        arguments: Any = {"baseline": self.baseline, "candidates": list(children), "examples": self.examples}
        arguments["signature"] = self.baseline.signature
        with _without_progress():
            find("evaluate")(
                **arguments,
                evaluation=folder / "evaluation",
                label=settings.label,
                output=settings.output,
                metrics=list(settings.metrics),
                slices=list(settings.slices),
                module=self.module,
                split="eval",  # the split test stays unseen, for the evaluation of the winner
                seed=settings.seed,
                tried=tried,
            )
            find("benchmark")(
                **arguments,
                benchmark=folder / "benchmark",
                seconds=settings.seconds,
                batch_sizes=list(settings.batch_sizes),
                threads=settings.threads,
                objective=settings.objective,
                seed=settings.seed,
            )
        quality, speed = Evaluation(folder / "evaluation").load(), Benchmark(folder / "benchmark").load()
        rows = [(name, m.digest, m.format) for name, m in zip(unique_names(models), models, strict=True)]
        measured, metric = join_reports(rows, quality, speed), main_metric(quality)
        slices = measured[0].evaluation.slices if measured[0].evaluation else []
        least = self.settings.slice_records
        goals = resolve_goals(self.goals, metric, measured[0].metrics, slices=slices, slice_records=least)
        objective = metric if settings.objective == QUALITY else settings.objective
        return [TrialMeasurement(model, metric, goals, objective, quality.counts.evaluated) for model in measured[1:]]

    def select(self, children: Sequence[Model], folder: Path) -> DecisionReport:
        """Run `select_model` on models whose reports are in ``folder``, and return its decision."""
        with _without_progress():
            find("select_model")(
                baseline=self.baseline,
                candidates=list(children),
                **{name: folder / name for name in ("evaluation", "benchmark", "selected", "decision", "blessing")},
                goals=list(self.settings.goals),
                slice_records=self.settings.slice_records,
                objective=self.settings.objective,
            )
        return Decision(folder / "decision").load()


@contextlib.contextmanager
def _without_progress() -> Iterator[None]:
    """Suppress the progress messages of components: the search logs a line per trial."""
    log = logging.getLogger("tfopt")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
