"""The search: recipes drawn by Optuna, given up cheaply where they can be, measured where not, until it is enough."""

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
from tfopt.components.tune_recipe import early_rejection as proxies
from tfopt.components.tune_recipe import recipes
from tfopt.components.tune_recipe.recipes import Recipe
from tfopt.components.tune_recipe.trial_measurement import GIVEN_UP, NOT_MADE, Judge, Judged
from tfopt.components.tune_recipe.trial_models import Kitchen
from tfopt.errors import ComponentError, disk_full_error

MARKS = ("threshold", "min_improvement")  # kinds of goals that say what is enough; the others say what is too much
REPEATS = 8  # how often the sampler may ask for what was tried, before something new is drawn evenly

log = logging.getLogger("tfopt")


@dataclass
class Trial:
    """One recipe and what came of it: ``measured`` or not, ``given up`` at a cheap sign, or ``not made``."""

    recipe: Recipe
    state: str = "not made"
    reason: str = ""
    seconds: float = 0.0
    model: Model | None = None
    judged: Judged | None = None
    reports: Path | None = None

    @property
    def wins(self) -> bool:
        """Whether it meets every goal and is proven better than the parent."""
        return bool(self.judged and self.judged.proven and not self.judged.failures)

    @property
    def score(self) -> float:
        """What the sampler makes small."""
        return self.judged.score if self.judged else GIVEN_UP if self.state == "given up" else NOT_MADE


@dataclass
class Search:
    """What is searched, with what, and how long.

    Attributes:
        most: Trials.
        minutes: From when it was made; a trial that has begun is ended.
        records: That a cheap look at the answers is given.
    """

    kitchen: Kitchen
    judge: Judge
    formats: Sequence[str]
    most: int
    minutes: float
    records: int
    seed: int
    trials: list[Trial] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def reuse_or_run(self, last: Recipe | None) -> tuple[bool, str]:
        """Try last time's winner first, and search only where it does not win any more.

        Returns:
            Whether it was enough, and why there are no more trials.
        """
        if last and self.attempt(last).wins:
            return True, "the recipe of the earlier run still meets the goals"
        return False, self.run()

    def run(self) -> str:
        """Try recipes that were not tried yet; fill `trials` and return why it stopped."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            sampler = optuna.samplers.TPESampler(seed=self.seed, multivariate=True, group=True)
        study = optuna.create_study(sampler=sampler)
        left = recipes.every(self.formats)
        random.Random(self.seed).shuffle(left)
        left = list(dict.fromkeys([*recipes.first(self.formats), *left]))
        known = {trial.recipe: trial.score for trial in self.trials}
        opening = 1 + len(recipes.first(self.formats))
        while not (enough := self._enough(known, left)):
            drawn, recipe = self._draw(study, known, left, opening)
            trial = self.attempt(recipe)
            known[recipe] = trial.score
            study.tell(drawn, trial.score)
        return enough

    def attempt(self, recipe: Recipe) -> Trial:
        """Make, look at and measure one recipe; its failure is its result.

        Raises:
            ComponentError: When the disk is full, or the parent cannot be measured.
        """
        trial, began = Trial(recipe), time.monotonic()
        self.trials.append(trial)
        try:
            trial.model = self.kitchen.make(recipe)
            if reason := self._sign(trial.model):
                trial.state, trial.reason = "given up", reason
        except ComponentError as error:
            if full := disk_full_error(error):  # which every other recipe would meet as well
                raise full from error
            trial.reason = error.received.strip().splitlines()[0]
        if trial.model and not trial.reason:
            trial.reports = self.kitchen.folder / f"trial {len(self.trials)}"
            (trial.judged,) = self.judge.judge([trial.model], trial.reports)
            trial.state = "not measured" if trial.judged.measured.error else "measured"
            trial.reason = trial.judged.in_words()
        trial.seconds = time.monotonic() - began
        spent = (time.monotonic() - self.began) / 60
        log.info(
            "[%d/%d, %.1f of %g min] %s: %s",
            len(self.trials), self.most, spent, self.minutes, recipe,
            trial.reason if trial.state == "measured" else f"{trial.state}: {trial.reason}",
        )  # fmt: skip
        return trial

    def _draw(
        self, study: optuna.Study, known: dict[Recipe, float], left: list[Recipe], opening: int
    ) -> tuple[Any, Recipe]:
        """A recipe that was not tried: one from each format first, then what the sampler finds promising."""
        for _ in range(REPEATS if len(known) >= opening else 0):
            drawn = study.ask()
            recipe = recipes.choose(drawn.suggest_categorical, self.formats)
            if recipe in left and recipe not in known:
                return drawn, recipe
            study.tell(drawn, known.get(recipe, 0.0))  # 0: the parent itself
        recipe = next(one for one in left if one not in known)
        study.enqueue_trial(recipe.choices)
        drawn = study.ask()
        recipes.choose(drawn.suggest_categorical, self.formats)
        return drawn, recipe

    def _sign(self, model: Model) -> str | None:
        """Why measuring it would be a waste; None when it would not."""
        last = next((trial.judged for trial in reversed(self.trials) if trial.judged), None)
        goals = last.goals if last else self.judge.question.goals
        if large := proxies.too_large(model, self.kitchen.model, goals):
            return large
        found = self.kitchen.changed(model, self.records, self.seed)
        return proxies.too_different(*found, goals, last.main_metric if last else None)

    def _enough(self, known: dict[Recipe, float], left: list[Recipe]) -> str:
        last = self.trials[-1] if self.trials else None
        marks = last.judged.goals if last and last.judged else ()
        if last and last.wins and any(goal.kind in MARKS for goal in marks):
            return "a recipe meets the goals"
        if len(known) >= self.most:
            return f"{self.most} trials were made"
        if len(known) == len(left):
            return "every recipe was tried"
        if time.monotonic() - self.began > 60 * self.minutes:
            return f"{self.minutes:g} minutes were over"
        return ""
