"""The content of ``evaluation.json``: metrics, differences to the baseline, parity, confusion matrices and slices."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float
    # why the interval is no bound and proves nothing; None if it is one
    no_bound: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Difference(Estimate):
    """The difference of a metric to the baseline's, with its confidence interval."""

    # how far one unseen record of the worst value moves the difference; None if the report does not state it
    unseen: float | None = None


@dataclass(frozen=True)
class Metric(Estimate):
    """A metric with its confidence interval."""

    higher_is_better: bool
    resolution: float | None = None  # largest error of the value, if it is computed from a histogram


@dataclass(frozen=True)
class RocPoint:
    """A point of the ROC curve."""

    threshold: float  # probability from which on a record counts as positive
    false_positive_rate: float  # share of the negative records above the threshold
    true_positive_rate: float  # share of the positive records above the threshold


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of a model over the records with one value of a slice feature."""

    feature: str
    value: int | str
    count: int
    metrics: dict[str, Metric]
    delta: dict[str, Difference]  # differences to the baseline by metric; empty for the baseline


@dataclass(frozen=True)
class ModelEvaluation:
    """The evaluation of one model; everything after the notes is empty if there is an error."""

    name: str
    digest: str
    format: str
    error: str | None  # the reason why it was not evaluated, or None
    notes: list[str]
    metrics: dict[str, Metric]
    delta: dict[str, Difference]  # differences to the baseline by metric; empty for the baseline
    # ``max_abs_error``, ``mean_abs_error`` and ``agreement`` of the outputs with the baseline's; empty for the baseline
    parity: dict[str, float | None]
    confusion: list[list[int]]  # number of records by true class (row) and predicted class (column)
    roc: list[RocPoint]  # ROC curve, if there are two classes
    slices: list[SliceMetrics]
    # differences to the constant model by metric; empty without one
    over_constant: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class ConstantModel:
    """The model whose output is the same for every record: the most frequent class, or the median of the labels."""

    name: str  # its name in tables, such as ``always class 3``
    metrics: dict[str, Metric]


@dataclass(frozen=True)
class RecordCounts:
    """The number of records."""

    read: int  # records in the files
    evaluated: int  # records that the metrics are computed from
    skipped: int  # records that could not be used
    skipped_because: dict[str, int]
    # number of different records among the evaluated ones; None if there are too many to compare all
    distinct: int | None = None


@dataclass(frozen=True)
class IntervalMethod:
    """The computation of the confidence intervals."""

    method: str
    replicates: int  # number of bootstrap replicates
    level: float  # probability that the intervals of a metric hold for all candidates together
    seed: int
    # number of models that the intervals hold for together: the candidates, or those that they were selected from; each
    # interval has the error ``(1 - level) / candidates``
    candidates: int = 1


@dataclass(frozen=True)
class EvaluationReport:
    """The content of ``evaluation.json``."""

    schema_version: ClassVar[int] = 1
    split: str
    chosen_on_it: list[str]  # names of the models whose best epoch was chosen on this split
    label: str
    task: str  # ``classification``, ``binary``, ``multi_label``, ``regression`` or ``other``
    output: str  # evaluated output of the baseline
    output_kind: str  # ``numbers``, ``logits`` or ``probabilities``
    classes: list[str]  # names of the rows and columns of the confusion matrices
    counts: RecordCounts
    interval: IntervalMethod
    baseline: str
    models: list[ModelEvaluation]  # the models, the baseline first
    metrics: list[str] = field(default_factory=list)  # the user's metrics, as they were named in the parameter
    constant: ConstantModel | None = None  # the constant model; None for the task ``other``
    # remarks on the records and examples, each with a number; `select_model` passes them on
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError if a confusion matrix does not fit the classes."""
        size = len(self.classes)
        for model in self.models:
            if model.confusion and [len(row) for row in model.confusion] != [size] * size:
                raise ValueError(f"the confusion matrix of {model.name!r} is not {size} x {size}")
