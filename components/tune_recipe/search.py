"""Search of recipes with Optuna: cheap rejection first, then measurement, until a stop condition is met."""

import logging
import random
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from tfopt.artifacts import Model
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.components.tune_recipe.recipes import NOT_TRAINED, Recipe, all_recipes, choose_recipe, first_recipes
from tfopt.components.tune_recipe.search_cost import TrialCost, find_excessive_cost
from tfopt.components.tune_recipe.trial_models import (
    GIVEN_UP,
    NOT_MADE,
    ModelBuilder,
    OutputDifference,
    TrialMeasurement,
    TrialMeasurer,
)
from tfopt.error_messages import disk_full_error
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import share_interval
from tfopt.measurement.goals import Goal
from tfopt.measurement.model_measurements import ModelMeasurements, from_sizes
from tfopt.metric_table import CLASSIFICATION, SIZES, mean_metrics

TARGETS = ("threshold", "min_improvement")  # kinds of goals that set a target; the others set a limit
ACCURACY = mean_metrics(CLASSIFICATION)[0].name  # no metric of a user has this name
BROKEN = 0.5  # 1 - correlation, or the share of changed classes, that no goal allows
REPEATS = 8  # proposals of recipes that were tried before, until one is drawn at random

log = logging.getLogger(__name__)


@dataclass
class Trial:
    """A tried recipe and its result."""

    recipe: Recipe
    state: str = "not made"  # ``measured``, ``not measured``, ``given up`` after a cheap check, or ``not made``
    reason: str = ""  # the result in one line
    seconds: float = 0.0
    model: Model | None = None  # None if it was not made
    measurement: TrialMeasurement | None = None  # None if there was none
    reports: Path | None = None  # folder of the reports of the measurement

    @property
    def wins(self) -> bool:
        """Return True if it meets all goals and is significantly better than the baseline."""
        return bool(self.measurement and self.measurement.is_better and not self.measurement.failures)

    @property
    def eligible(self) -> ModelMeasurements | None:
        """Return the measurements of a model that meets all goals; None for another one."""
        return self.measurement.measured if self.measurement and not self.measurement.failures else None

    @property
    def score(self) -> float:
        """Return the value that the sampler minimizes."""
        if self.measurement:
            return self.measurement.score
        return GIVEN_UP if self.state == "given up" else NOT_MADE


@dataclass
class Search:
    """A search within a budget, which starts when the object is created; ``trials`` are in order."""

    builder: ModelBuilder
    measurer: TrialMeasurer
    settings: SearchSettings
    trials: list[Trial] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)

    def reuse_or_run(self, first: Recipe | None) -> tuple[bool, str]:
        """Try the winner of an earlier run, search only if it does not win; return if it won, and why trials ended."""
        if first and self.try_recipe(first).wins:
            return True, "the recipe of the earlier run still meets the goals"
        return False, self.run()

    def run(self) -> str:
        """Try recipes that were not tried yet; append to `trials` and return why the search stopped."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            sampler = optuna.samplers.TPESampler(seed=self.settings.seed, multivariate=True, group=True)
        study = optuna.create_study(sampler=sampler)
        shuffled = all_recipes(*self._space)
        random.Random(self.settings.seed).shuffle(shuffled)
        first = first_recipes(*self._space)
        candidates = list(dict.fromkeys([*first, *shuffled]))
        scores = {trial.recipe: trial.score for trial in self.trials}
        while not (stopped := self._stop_reason(scores, candidates)):
            optuna_trial, recipe = self._propose(study, scores, candidates, after=1 + len(first))
            trial = self.try_recipe(recipe)
            scores[recipe] = trial.score
            study.tell(optuna_trial, trial.score)
        return stopped

    def try_recipe(self, recipe: Recipe) -> Trial:
        """Build, check and measure one recipe; a failure is its result.

        Raises:
            ComponentError: If the disk is full, or the baseline cannot be measured.
        """
        trial, start = Trial(recipe), time.monotonic()
        self.trials.append(trial)
        try:
            trial.model = self.builder.build(recipe)
            if reason := self._rejection(trial.model, recipe.is_trained):
                trial.state, trial.reason = "given up", reason
        except ComponentError as error:
            if full := disk_full_error(error):  # all other recipes would fail too
                raise full from error
            trial.reason = error.received.strip().splitlines()[0]
        if trial.model and not trial.reason:
            trial.reports = self.builder.folder / f"trial {len(self.trials)}"
            (trial.measurement,) = self.measurer.measure([trial.model], trial.reports)
            trial.state = "not measured" if trial.measurement.measured.error else "measured"
            trial.reason = trial.measurement.describe()
        trial.seconds = time.monotonic() - start
        log.info(
            "[%d/%d, %.1f of %g min] %s: %s",
            len(self.trials), self.settings.trials, self.minutes, self.settings.minutes, recipe,
            trial.reason if trial.state == "measured" else f"{trial.state}: {trial.reason}",
        )  # fmt: skip
        return trial

    @property
    def _space(self) -> tuple[Sequence[str], bool]:
        return self.settings.formats, self.settings.fine_tuning_epochs > 0

    @property
    def minutes(self) -> float:
        """Return the minutes since the start."""
        return (time.monotonic() - self.start) / 60

    def _propose(
        self, study: optuna.Study, scores: dict[Recipe, float], candidates: list[Recipe], after: int
    ) -> tuple[Any, Recipe]:
        """Return a recipe that was not tried: the first candidates in order, then proposals of the sampler."""
        for _ in range(REPEATS if len(scores) >= after else 0):
            optuna_trial = study.ask()
            recipe = choose_recipe(optuna_trial.suggest_categorical, *self._space)
            if recipe in candidates and recipe not in scores:
                return optuna_trial, recipe
            study.tell(optuna_trial, scores.get(recipe, 0.0))  # 0: the baseline itself
        recipe = next(candidate for candidate in candidates if candidate not in scores)
        study.enqueue_trial(NOT_TRAINED | recipe.choices)
        optuna_trial = study.ask()
        choose_recipe(optuna_trial.suggest_categorical, *self._space)
        return optuna_trial, recipe

    def _rejection(self, model: Model, is_trained: bool) -> str | None:
        """Return why the model need not be measured, or None; a trained one may change classes and be as accurate."""
        newest = next((trial.measurement for trial in reversed(self.trials) if trial.measurement), None)
        goals = newest.goals if newest else self.measurer.goals
        if missed := find_missed_size_goal(model, self.builder.model, goals):
            return missed
        difference = self.builder.compare_outputs(model, self.settings.records, self.settings.seed)
        return find_excessive_difference(
            difference, () if is_trained else goals, newest.main_metric if newest else None
        )

    def _stop_reason(self, scores: dict[Recipe, float], candidates: list[Recipe]) -> str:
        """Return why the search stops now; empty if it goes on."""
        newest = self.trials[-1] if self.trials else None
        goals = newest.measurement.goals if newest and newest.measurement else ()
        if newest and newest.wins and any(goal.kind in TARGETS for goal in goals):
            return "a recipe meets the goals"
        if len(scores) >= self.settings.trials:
            return f"{self.settings.trials} trials were made"
        if len(scores) == len(candidates):
            return "every recipe was tried"
        if self.minutes > self.settings.minutes:
            return f"{self.settings.minutes:g} minutes were over"
        costs = [TrialCost(trial.seconds, trial.eligible) for trial in self.trials]
        return find_excessive_cost(costs, self.settings) or ""


def find_missed_size_goal(child: Model, baseline: Model, goals: Sequence[Goal]) -> str | None:
    """Return how a model misses a goal on its size, or None. Sizes are exact, so this never rejects a good model."""
    after = from_sizes(child, from_sizes(baseline, None))
    failures = (goal.failure(after, proven=True, examples=0) for goal in goals if goal.metric in SIZES)
    return next((failure for failure in failures if failure), None)


def find_excessive_difference(
    difference: OutputDifference, goals: Sequence[Goal], main_metric: str | None
) -> str | None:
    """Return why a model with these differences cannot meet the goals, or None.

    Accuracy falls by at most the share of records whose class changes, and for a good baseline by nearly as much. A
    model is rejected only if even the lower bound of that share is twice what the goal allows; closer to the goal, only
    `evaluate` can decide. Changed classes count only if the main metric of the evaluation, which is None before the
    first one, is accuracy.
    """
    if difference.decorrelation > BROKEN:
        return f"correlation {1 - difference.decorrelation:.2f} with the parent on {difference.records} records"
    if main_metric != ACCURACY:
        return None
    allowed = [2 * goal.number for goal in goals if goal.kind == "max_degradation" and goal.metric == main_metric]
    least = share_interval(difference.changed, difference.records, 0.05)[0]
    if least <= min(allowed, default=BROKEN):
        return None
    changed = f"{difference.changed} of {difference.records} records change their class"
    return f"{changed}: at least {least:.1%}, twice what the goal allows"
