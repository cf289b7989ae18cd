"""The content of ``evaluation.json``: metrics, differences to the baseline, parity, confusion matrices and slices."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval.

    Attributes:
        no_bound: Why the interval is no bound and proves nothing; None if it is one.
    """

    value: float
    low: float
    high: float
    no_bound: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Difference(Estimate):
    """The difference of a metric to the baseline's, with its confidence interval.

    Attributes:
        unseen: How far one unseen record of the worst value moves the difference; None if the report does not state it.
    """

    unseen: float | None = None


@dataclass(frozen=True)
class Metric(Estimate):
    """A metric with its confidence interval.

    Attributes:
        resolution: Largest error of the value, if it is computed from a histogram.
    """

    higher_is_better: bool
    resolution: float | None = None


@dataclass(frozen=True)
class RocPoint:
    """A point of the ROC curve.

    Attributes:
        threshold: Probability from which on a record counts as positive.
        false_positive_rate: Share of the negative records above the threshold.
        true_positive_rate: Share of the positive records above the threshold.
    """

    threshold: float
    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True)
class SliceMetrics:
    """The metrics of a model over the records with one value of a slice feature.

    Attributes:
        delta: Differences to the baseline by metric; empty for the baseline.
    """

    feature: str
    value: int | str
    count: int
    metrics: dict[str, Metric]
    delta: dict[str, Difference]


@dataclass(frozen=True)
class ModelEvaluation:
    """The evaluation of one model; everything after the notes is empty if there is an error.

    Attributes:
        error: The reason why it was not evaluated, or None.
        delta: Differences to the baseline by metric; empty for the baseline.
        parity: ``max_abs_error``, ``mean_abs_error`` and ``agreement`` of the outputs with the baseline's; empty for
            the baseline.
        confusion: Number of records by true class (row) and predicted class (column).
        roc: ROC curve, if there are two classes.
        over_constant: Differences to the constant model by metric; empty without one.
    """

    name: str
    digest: str
    format: str
    error: str | None
    notes: list[str]
    metrics: dict[str, Metric]
    delta: dict[str, Difference]
    parity: dict[str, float | None]
    confusion: list[list[int]]
    roc: list[RocPoint]
    slices: list[SliceMetrics]
    over_constant: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class ConstantModel:
    """The model whose output is the same for every record: the most frequent class, or the median of the labels.

    Attributes:
        name: Its name in tables, such as ``always class 3``.
    """

    name: str
    metrics: dict[str, Metric]


@dataclass(frozen=True)
class RecordCounts:
    """The number of records.

    Attributes:
        read: Records in the files.
        evaluated: Records that the metrics are computed from.
        skipped: Records that could not be used.
        distinct: Number of different records among the evaluated ones; None if there are too many to compare all.
    """

    read: int
    evaluated: int
    skipped: int
    skipped_because: dict[str, int]
    distinct: int | None = None


@dataclass(frozen=True)
class IntervalMethod:
    """The computation of the confidence intervals.

    Attributes:
        replicates: Number of bootstrap replicates.
        level: Probability that the intervals of a metric hold for all candidates together.
        candidates: Number of models that the intervals hold for together: the candidates, or those that they were
            selected from; each interval has the error ``(1 - level) / candidates``.
    """

    method: str
    replicates: int
    level: float
    seed: int
    candidates: int = 1


@dataclass(frozen=True)
class EvaluationReport:
    """The content of ``evaluation.json``.

    Attributes:
        chosen_on_it: Names of the models whose best epoch was chosen on this split.
        task: ``classification``, ``binary``, ``multi_label``, ``regression`` or ``other``.
        output: Evaluated output of the baseline.
        output_kind: ``numbers``, ``logits`` or ``probabilities``.
        classes: Names of the rows and columns of the confusion matrices.
        models: The models, the baseline first.
        metrics: The user's metrics, as they were named in the parameter.
        constant: The constant model; None for the task ``other``.
        notes: Remarks on the records and examples, each with a number; `select_model` passes them on.
    """

    schema_version: ClassVar[int] = 1
    split: str
    chosen_on_it: list[str]
    label: str
    task: str
    output: str
    output_kind: str
    classes: list[str]
    counts: RecordCounts
    interval: IntervalMethod
    baseline: str
    models: list[ModelEvaluation]
    metrics: list[str] = field(default_factory=list)
    constant: ConstantModel | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError if a confusion matrix does not fit the classes."""
        size = len(self.classes)
        for model in self.models:
            if model.confusion and [len(row) for row in model.confusion] != [size] * size:
                raise ValueError(f"the confusion matrix of {model.name!r} is not {size} x {size}")
