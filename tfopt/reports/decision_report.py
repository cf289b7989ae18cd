"""The content of ``decision.json`` and ``blessing.json``: the selected model, the reasons, the permission to push."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tfopt.errors import ComponentError
from tfopt.reports.benchmark_report import LoadSettings
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
    load: LoadSettings | None = None  # of capacity and what follows from it


@dataclass(frozen=True)
class ModelDecision:
    """The decision on one model."""

    name: str
    digest: str
    format: str
    parent: bool  # True for the baseline
    passed: bool  # True if it was measured and meets every goal
    pareto: bool
    chosen: bool
    reasons: list[str]  # why it was selected or not, the most important reason first
    metrics: dict[str, float]
    missed_by: str = ""  # by how much it misses each goal or, if it meets all of them, the selected model
    summary: str = ""  # the most important reason in a few words
    # metrics of speed that were not compared, because other processes used the machine
    disturbed: list[str] = field(default_factory=list)
    # how its conversion changed more answers than rounding explains, or than other conversions did
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EarlierRun:
    """A blessed run that this one is compared with."""

    time: str  # when it was pushed, ISO 8601
    version: int | None  # the version that it was pushed as
    winner: str  # name of its selected model
    parent: str  # name of its baseline


@dataclass(frozen=True)
class Trend:
    """A watched metric of the winner or the parent, over the earlier runs and in this one."""

    goal: str
    metric: str
    who: Role  # the model's role in each run
    name: str
    # the values in earlier runs, oldest first; None where they are missing or not comparable
    earlier: list[float | None]
    value: float | None
    low: float | None
    high: float | None
    median: float | None  # the median of the earlier values; None if too few are comparable
    regression: str | None  # the sentence that reports a regression, or None
    disturbed: bool = False  # True if the value is not compared, because other processes used the machine


@dataclass(frozen=True)
class HistoryComparison:
    """The comparison with recent blessed runs."""

    runs: list[EarlierRun]  # these runs, oldest first
    fewest: int  # the number of comparable runs below which no regression is reported
    trends: list[Trend]
    regressions: list[str]  # the sentences of all regressions


@dataclass(frozen=True)
class ConstantRow:
    """The constant model's row: what a model that ignores its inputs reaches."""

    name: str  # its name, such as ``always class 3``
    metric: str  # the main metric of the evaluation
    value: float


@dataclass(frozen=True)
class DecisionReport:
    """The content of ``decision.json``."""

    schema_version: ClassVar[int] = 1
    selected: str
    blessed: bool  # True if it may be pushed
    reason: str
    objective: str  # the objective, as it was passed
    goals: list[str]  # the goals, as they were passed
    # ``interval``, or ``estimate`` (``point``) if goals were compared with measured values
    confidence: Literal["interval", "estimate", "point"]
    layout: str  # the serving layout that the selected model must fit
    watch: list[str]  # the watched goals, as they were passed
    models: list[ModelDecision]  # all models, the baseline first
    conditions: MeasurementConditions
    history: HistoryComparison
    selected_digest: str  # digest of the output ``selected``
    constant: ConstantRow | None = None  # the constant model; None if it was not evaluated
    # the notes of the evaluation: what weakens its metrics, each with a number
    notes: list[str] = field(default_factory=list)
    # names of the models whose speed was not compared, because other processes used the machine
    unstable: list[str] = field(default_factory=list)
    records: int = 0  # the number of examples that quality was measured on; 0 in decisions of earlier releases

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
    """The content of ``blessing.json``."""

    schema_version: ClassVar[int] = 1
    blessed: bool
    reason: str
    model_digest: str | None  # digest of the model that it is about; None for a blessing of TFX's Evaluator
    # True if the baseline may be pushed instead of a model that cannot be served; None, which counts as True, in files
    # that do not state it
    parent_blessed: bool | None = None
    withheld: str | None = None  # why TFX's Pusher may not push the model, which `push_model` may; None if it may
