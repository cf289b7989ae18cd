"""The content of ``decision.json`` and ``blessing.json``: the selected model, the reasons, the permission to push."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tfopt.errors import ComponentError
from tfopt.reports.report_schema import AGAIN

Role = Literal["winner", "parent"]


@dataclass(frozen=True)
class QualityConditions:
    """Conditions under which quality metrics of two runs are comparable: all values are equal."""

    task: str | None
    label: str | None
    split: str | None


@dataclass(frozen=True)
class SpeedConditions:
    """Conditions under which speed metrics of two runs are comparable: all values are equal."""

    cpu: str | None
    threads: int | None
    batch_sizes: list[int] | None


@dataclass(frozen=True)
class MeasurementConditions:
    """The conditions that a run was measured under."""

    quality: QualityConditions
    speed: SpeedConditions


@dataclass(frozen=True)
class ModelDecision:
    """The decision on one model.

    Attributes:
        parent: True for the baseline.
        passed: True if it was measured and meets every goal.
        reasons: Why it was selected or not, the most important reason first.
        missed_by: By how much it misses each goal or, if it meets all of them, the selected model.
        summary: The most important reason in a few words.
        disturbed: Metrics of speed that were not compared, because other processes used the machine.
        warnings: How its conversion changed more answers than rounding explains, or than other conversions did.
    """

    name: str
    digest: str
    format: str
    parent: bool
    passed: bool
    pareto: bool
    chosen: bool
    reasons: list[str]
    metrics: dict[str, float]
    missed_by: str = ""
    summary: str = ""
    disturbed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EarlierRun:
    """A blessed run that this one is compared with.

    Attributes:
        time: When it was pushed, ISO 8601.
        version: The version that it was pushed as.
        winner: Name of its selected model.
        parent: Name of its baseline.
    """

    time: str
    version: int | None
    winner: str
    parent: str


@dataclass(frozen=True)
class Trend:
    """A watched metric of the winner or the parent, over the earlier runs and in this one.

    Attributes:
        who: The model's role in each run.
        earlier: The values in earlier runs, oldest first; None where they are missing or not comparable.
        median: The median of the earlier values; None if too few are comparable.
        regression: The sentence that reports a regression, or None.
        disturbed: True if the value is not compared, because other processes used the machine.
    """

    goal: str
    metric: str
    who: Role
    name: str
    earlier: list[float | None]
    value: float | None
    low: float | None
    high: float | None
    median: float | None
    regression: str | None
    disturbed: bool = False


@dataclass(frozen=True)
class HistoryComparison:
    """The comparison with recent blessed runs.

    Attributes:
        runs: These runs, oldest first.
        fewest: The number of comparable runs below which no regression is reported.
        regressions: The sentences of all regressions.
    """

    runs: list[EarlierRun]
    fewest: int
    trends: list[Trend]
    regressions: list[str]


@dataclass(frozen=True)
class ConstantRow:
    """The constant model's row: what a model that ignores its inputs reaches.

    Attributes:
        name: Its name, such as ``always class 3``.
        metric: The main metric of the evaluation.
    """

    name: str
    metric: str
    value: float


@dataclass(frozen=True)
class DecisionReport:
    """The content of ``decision.json``.

    Attributes:
        blessed: True if it may be pushed.
        objective: The objective, as it was passed.
        goals: The goals, as they were passed.
        confidence: ``interval``, or ``estimate`` (``point``) if goals were compared with measured values.
        layout: The serving layout that the selected model must fit.
        watch: The watched goals, as they were passed.
        models: All models, the baseline first.
        selected_digest: Digest of the output ``selected``.
        constant: The constant model; None if it was not evaluated.
        notes: The notes of the evaluation: what weakens its metrics, each with a number.
        unstable: Names of the models whose speed was not compared, because other processes used the machine.
    """

    schema_version: ClassVar[int] = 1
    selected: str
    blessed: bool
    reason: str
    objective: str
    goals: list[str]
    confidence: Literal["interval", "estimate", "point"]
    layout: str
    watch: list[str]
    models: list[ModelDecision]
    conditions: MeasurementConditions
    history: HistoryComparison
    selected_digest: str
    constant: ConstantRow | None = None
    notes: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)

    @property
    def is_undecided(self) -> bool:
        """True if no candidate is selected or blessed, and speeds that were not compared may be the reason."""
        return bool(self.unstable) and (not self.blessed or self.chosen.parent)

    @property
    def chosen(self) -> ModelDecision:
        """Return the decision on the selected model."""
        return _only([model for model in self.models if model.chosen], "chosen")

    @property
    def parent(self) -> ModelDecision:
        """Return the decision on the baseline."""
        return _only([model for model in self.models if model.parent], "parent")


def _only(models: list[ModelDecision], key: str) -> ModelDecision:
    if len(models) != 1:
        raise ComponentError(f"a decision in which {key} is true for {len(models)} models", "one model", AGAIN)
    return models[0]


@dataclass(frozen=True)
class BlessingReport:
    """The content of ``blessing.json``.

    Attributes:
        model_digest: Digest of the model that it is about; None for a blessing of TFX's Evaluator.
        parent_blessed: True if the baseline may be pushed instead of a model that cannot be served; None, which counts
            as True, in files that do not state it.
        withheld: Why TFX's Pusher may not push the model, which `push_model` may; None if it may.
    """

    schema_version: ClassVar[int] = 1
    blessed: bool
    reason: str
    model_digest: str | None
    parent_blessed: bool | None = None
    withheld: str | None = None
