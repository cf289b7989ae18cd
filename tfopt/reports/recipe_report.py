"""The content of ``recipe.json``: the recipe that `tune_recipe` found, and everything that it measured."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.decision_report import DecisionReport
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class RelativeMetrics:
    """Metrics of a model relative to the parent that it was measured with."""

    quality: float  # gain in the main metric, in its unit
    speed: float  # speedup at the smallest batch size
    size: float  # size as a fraction of the parent's


@dataclass(frozen=True)
class RecipeStep:
    """A component of a recipe, with the parameters that differ from its defaults."""

    component: str
    parameters: JsonObject


@dataclass(frozen=True)
class WinningRecipe:
    """The recipe of the selected model."""

    name: str  # the steps in one line
    choices: dict[str, str]  # the choices that lead to the steps
    steps: list[RecipeStep]
    commands: list[str]


@dataclass(frozen=True)
class TrialReport:
    """A recipe that this run tried."""

    name: str  # the steps in one line
    choices: dict[str, str]  # the choices that lead to the steps
    state: str  # ``measured``, ``not measured``, ``given up`` or ``not made``
    reason: str  # the result in one line, or why it was not measured
    seconds: float
    meets_goals: bool
    proven_better: bool  # True if it is significantly better than the parent at the objective
    finalist: bool  # True if it was measured again in the last round
    winner: bool
    score: float  # the value that the search minimizes
    beside_parent: RelativeMetrics | None  # metrics relative to the parent; None if they were not measured
    metrics: dict[str, float]  # values of its metrics; empty if they were not measured
    pareto: bool  # True if it is on the Pareto front of this and earlier runs


@dataclass(frozen=True)
class EarlierTrial:
    """A recipe that an earlier run measured."""

    name: str  # the steps in one line
    choices: dict[str, str]  # the choices that lead to the steps
    seconds: float
    beside_parent: RelativeMetrics  # metrics relative to the parent of its run
    metrics: dict[str, float]
    time: str  # when its run ended, ISO 8601
    parent: str  # digest of the parent of its run
    examples: str  # digest of the examples of its run
    same_parent: bool  # True if that is the parent of this run too
    same_examples: bool  # True if these are the examples of this run too
    pareto: bool  # True if it is on the Pareto front of this and earlier runs


@dataclass(frozen=True)
class RecipeReport:
    """The content of ``recipe.json``."""

    schema_version: ClassVar[int] = 1
    reason: str  # the result in one sentence
    winner: WinningRecipe | None  # the recipe of the selected model; None if that is the parent
    blessed: bool
    reused: bool  # True if the recipe of the earlier run was good enough
    stopped: str  # why the search stopped
    goals: list[str]
    objective: str
    formats: list[str]
    seed: int
    examples: str  # digest of the examples
    time: str  # when the run ended, ISO 8601
    minutes: float  # duration of the search
    trials: list[TrialReport]  # the recipes that this run tried, in order
    decision: DecisionReport  # the decision of the last round
    earlier: list[EarlierTrial]  # the newest measurement of each recipe that only earlier runs measured
    left_out: str  # why measurements of the earlier run are not comparable; empty if they are
    # set by `push_model`: True if the selected model is the newest version in the destination
    served: bool | None = None
