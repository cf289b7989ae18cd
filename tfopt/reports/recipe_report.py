"""The content of ``recipe.json``: the recipe that `tune_recipe` found, and everything that it measured."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.decision_report import DecisionReport
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class RelativeMetrics:
    """Metrics of a model relative to the parent that it was measured with.

    Attributes:
        quality: Gain in the main metric, in its unit.
        speed: Speedup at the smallest batch size.
        size: Size as a fraction of the parent's.
    """

    quality: float
    speed: float
    size: float


@dataclass(frozen=True)
class RecipeStep:
    """A component of a recipe, with the parameters that differ from its defaults."""

    component: str
    parameters: JsonObject


@dataclass(frozen=True)
class WinningRecipe:
    """The recipe of the selected model.

    Attributes:
        name: The steps in one line.
        choices: The choices that lead to the steps.
    """

    name: str
    choices: dict[str, str]
    steps: list[RecipeStep]
    commands: list[str]


@dataclass(frozen=True)
class TrialReport:
    """A recipe that this run tried.

    Attributes:
        name: The steps in one line.
        choices: The choices that lead to the steps.
        state: ``measured``, ``not measured``, ``given up`` or ``not made``.
        reason: The result in one line, or why it was not measured.
        proven_better: True if it is significantly better than the parent at the objective.
        finalist: True if it was measured again in the last round.
        score: The value that the search minimizes.
        beside_parent: Metrics relative to the parent; None if they were not measured.
        metrics: Values of its metrics; empty if they were not measured.
        pareto: True if it is on the Pareto front of this and earlier runs.
    """

    name: str
    choices: dict[str, str]
    state: str
    reason: str
    seconds: float
    meets_goals: bool
    proven_better: bool
    finalist: bool
    winner: bool
    score: float
    beside_parent: RelativeMetrics | None
    metrics: dict[str, float]
    pareto: bool


@dataclass(frozen=True)
class EarlierTrial:
    """A recipe that an earlier run measured.

    Attributes:
        name: The steps in one line.
        choices: The choices that lead to the steps.
        beside_parent: Metrics relative to the parent of its run.
        time: When its run ended, ISO 8601.
        parent: Digest of the parent of its run.
        examples: Digest of the examples of its run.
        same_parent: True if that is the parent of this run too.
        same_examples: True if these are the examples of this run too.
        pareto: True if it is on the Pareto front of this and earlier runs.
    """

    name: str
    choices: dict[str, str]
    seconds: float
    beside_parent: RelativeMetrics
    metrics: dict[str, float]
    time: str
    parent: str
    examples: str
    same_parent: bool
    same_examples: bool
    pareto: bool


@dataclass(frozen=True)
class RecipeReport:
    """The content of ``recipe.json``.

    Attributes:
        reason: The result in one sentence.
        winner: The recipe of the selected model; None if that is the parent.
        reused: True if the recipe of the earlier run was good enough.
        stopped: Why the search stopped.
        examples: Digest of the examples.
        time: When the run ended, ISO 8601.
        minutes: Duration of the search.
        trials: The recipes that this run tried, in order.
        decision: The decision of the last round.
        earlier: The newest measurement of each recipe that only earlier runs measured.
        left_out: Why measurements of the earlier run are not comparable; empty if they are.
        served: Set by `push_model`: True if the selected model is the newest version in the destination.
    """

    schema_version: ClassVar[int] = 1
    reason: str
    winner: WinningRecipe | None
    blessed: bool
    reused: bool
    stopped: str
    goals: list[str]
    objective: str
    formats: list[str]
    seed: int
    examples: str
    time: str
    minutes: float
    trials: list[TrialReport]
    decision: DecisionReport
    earlier: list[EarlierTrial]
    left_out: str
    served: bool | None = None
