"""Write the trials of a search as an Optuna journal, which ``optuna-dashboard`` opens."""

import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from tfopt.components.tune_recipe.recipes import all_recipes
from tfopt.reports.recipe_report import RecipeReport, TrialReport

STUDY = "tune_recipe"
OBJECTIVES: dict[str, Literal["minimize", "maximize"]] = {
    "gain in quality": "maximize",
    "speed": "maximize",
    "relative size": "minimize",
}


def write_journal(report: RecipeReport, file: Path) -> None:
    """Write a new journal with one study, whose objectives are relative to the model that the recipes start from."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        storage = JournalStorage(JournalFileBackend(str(file)))
        study = optuna.create_study(study_name=STUDY, storage=storage, directions=list(OBJECTIVES.values()))
        study.set_metric_names(list(OBJECTIVES))
    for name in ("reason", "objective", "goals", "stopped"):
        study.set_user_attr(name, getattr(report, name))
    study.add_trials(list(_frozen_trials(report)))


def _frozen_trials(report: RecipeReport) -> Iterator[FrozenTrial]:
    """Yield the trials, one after the other in time, as the search made them."""
    values = _values(report)
    end = datetime.datetime.fromisoformat(report.time).replace(tzinfo=None)
    start = end - datetime.timedelta(seconds=sum(trial.seconds for trial in report.trials))
    for number, trial in enumerate(report.trials):
        end = start + datetime.timedelta(seconds=trial.seconds)
        relative = trial.beside_parent
        unmeasured = TrialState.PRUNED if trial.state == "given up" else TrialState.FAIL
        yield FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState.COMPLETE if relative else unmeasured,
            value=None,
            values=[relative.quality, relative.speed, relative.size] if relative else None,
            datetime_start=start,
            datetime_complete=end,
            params=trial.choices,
            distributions={name: optuna.distributions.CategoricalDistribution(values[name]) for name in trial.choices},
            user_attrs=_facts(trial),
            system_attrs={},
            intermediate_values={},
        )
        start = end


def _values(report: RecipeReport) -> dict[str, list[str]]:
    """Return the values of each choice: Optuna requires the same ones in all trials."""
    tried = [trial.choices for trial in report.trials]
    values: dict[str, dict[str, None]] = {}
    for choices in [*(recipe.choices for recipe in all_recipes(report.formats)), *tried]:
        for name, value in choices.items():
            values.setdefault(name, {})[value] = None
    return {name: list(words) for name, words in values.items()}


def _facts(trial: TrialReport) -> dict[str, object]:
    names = ("name", "state", "reason", "score", "meets_goals", "proven_better", "finalist", "winner", "pareto")
    return {"recipe" if name == "name" else name: getattr(trial, name) for name in names} | trial.metrics
