"""Models of a search: run the components of a recipe, compare a few outputs with the baseline, measure, and score.

Each component, and the comparison, runs in a process of its own: a crash is a failed trial and does not end the search.
"""

import contextlib
import hashlib
import json
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfopt import formatting, runtimes
from tfopt.artifacts import Benchmark, Decision, Evaluation, Examples, Model, PythonModule, unique_names
from tfopt.component import find
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.components.tune_recipe.recipes import Recipe, Step
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError
from tfopt.execution.execute import run_component
from tfopt.measurement.goals import QUALITY, Goal, read_goals, resolve_goals
from tfopt.measurement.metric_names import check_goal_metrics
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports, main_metric
from tfopt.measurement.parity import compare
from tfopt.measurement.significance import is_significantly_better
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.decision_report import DecisionReport
from tfopt.reports.recipe_report import RelativeMetrics

MIN_SECONDS = 60.0  # that a step may take even if less of the budget is left
MISSED_GOAL = 1.0  # added to the score for each missed goal: as much as half of the speed
TRAINING = ("prune", "quantize")  # the components that fine-tune
GIVEN_UP, NOT_MADE = 8.0, 10.0  # scores of recipes that were not measured


@dataclass(frozen=True)
class OutputDifference:
    """The difference between the outputs of a model and its baseline."""

    changed: int  # number of records whose class changed
    records: int  # number of compared records
    decorrelation: float  # 1 minus the correlation of the worst output


def training_arguments(step: Step, settings: SearchSettings, module: str, teacher: str) -> dict[str, object]:
    """Return the arguments of a step that fine-tunes; quantization learns from the model that the search began with."""
    arguments: dict[str, object] = {"module": module, "label": settings.label, "epochs": settings.fine_tuning_epochs}
    has_teacher = step.component == "quantize" and "alpha" not in step.parameters
    return arguments | ({"teacher": teacher} if has_teacher else {})


@dataclass(frozen=True)
class ModelBuilder:
    """Builds models from one baseline in a folder; steps that several recipes start with run once."""

    model: Model  # the baseline
    examples: Examples  # for calibration and comparison
    output: str | None  # the output to compare; all of them if None
    folder: Path
    settings: SearchSettings
    module: PythonModule | None
    deadline: float  # the time, by `time.monotonic`, at which a running step is stopped
    failed: dict[str, ComponentError] = field(default_factory=dict)  # errors of steps by the name of their folder

    def build(self, recipe: Recipe) -> Model:
        """Run the steps of a recipe; raise ComponentError if one fails, or takes longer than the budget."""
        model = self.model
        for count, step in enumerate(recipe.steps, 1):
            folder = self.folder / _key(recipe.steps[:count])
            if folder.name in self.failed:
                raise self.failed[folder.name]
            if not folder.exists():
                arguments: dict[str, object] = {"model": model.uri, "examples": self.examples.uri}
                arguments |= {step.output: str(folder), **step.parameters, "signature": self.model.signature}
                try:
                    if step.component in TRAINING and self.module:
                        arguments |= training_arguments(step, self.settings, self.module.uri, self.model.uri)
                    if "weight_bits" in step.parameters:
                        arguments["sensitivities"] = self._measure_sensitivities(model, folder)
                    run_component(step.component, arguments, doing=str(step), limit_s=self._seconds_left())
                except ComponentError as error:  # other recipes with the same first steps fail without running them
                    self.failed[folder.name] = error
                    raise
            model = Model.open(folder)
        return model

    def _measure_sensitivities(self, model: Model, folder: Path) -> str:
        """Measure those of a model that is trained in a mix of bits, and return their folder."""
        target = str(folder.with_name(f"{folder.name} sensitivities"))
        arguments: dict[str, object] = {"model": model.uri, "examples": self.examples.uri, "sensitivities": target}
        minutes = self._seconds_left() / 60 / 4  # the rest is for the training
        arguments |= {"label": self.settings.label, "minutes": minutes, "signature": self.model.signature}
        run_component("measure_sensitivities", arguments, doing="sensitivities", limit_s=self._seconds_left())
        return target

    def compare_outputs(self, child: Model, records: int, seed: int) -> OutputDifference:
        """Compare a model with the baseline on a few records that no model was calibrated on.

        Raises:
            ComponentError: If the model cannot be loaded or run.
        """
        return run_in_child(
            measure_difference, self.model.uri, child.uri, self.examples.uri, self.output, records, seed,
            self.model.signature, doing="comparing", limit_s=self._seconds_left(),
        )  # fmt: skip

    def _seconds_left(self) -> float:
        return max(MIN_SECONDS, self.deadline - time.monotonic())


def measure_difference(
    baseline: str, child: str, examples: str, output: str | None, records: int, seed: int, signature: str | None = None
) -> OutputDifference:
    """Compare two models in this process; see `ModelBuilder.compare_outputs`."""
    first, second = (runtimes.load(Model(uri), signature=signature) for uri in (baseline, child))
    with first, second:
        inputs, _ = draw_inputs(Examples(examples), first.inputs, records=records, seed=seed)
        parities = compare(first, second, split_batches(inputs, first.inputs, 32))
    if output in parities:
        parities = {output: parities[output]}
    agreements = [parity.agreement for parity in parities.values() if parity.agreement is not None]
    total = next(iter(parities.values())).records
    correlations = [1.0 if parity.correlation is None else parity.correlation for parity in parities.values()]
    return OutputDifference(round((1 - min(agreements, default=1.0)) * total), total, 1 - min(correlations))


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
        load = {"max_p99_ms": settings.max_p99_ms, "rate": settings.requests_per_second, "price": settings.price}
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
                **(load if settings.max_p99_ms else {}),
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


def _key(steps: Sequence[Step]) -> str:
    text = json.dumps([[step.component, step.parameters] for step in steps], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
