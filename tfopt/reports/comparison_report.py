"""The content of ``comparison.json``: cost and quality of backbones, and the selected one."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.benchmark_report import ModelBenchmark
from tfopt.reports.evaluation_report import Difference, IntervalMethod, Metric, RecordCounts
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class FailedMeasurement:
    """A backbone that could not be measured in a runtime."""

    error: str


@dataclass(frozen=True)
class ShortTraining:
    """The training of the backbones, and the evaluation after it."""

    epochs: int
    records: int  # largest number of examples per epoch
    batch_size: int
    split: str  # split of the evaluation
    counts: RecordCounts
    interval: IntervalMethod
    best: str  # the backbone with the best validation, which the others are compared with


@dataclass(frozen=True)
class BackboneResult:
    """The results of one backbone."""

    name: str  # name of the backbone with its width multiplier
    builder: str  # name of its function in ``keras.applications``
    alpha: float  # width multiplier
    module: str  # path of its Python module, relative to the report's folder
    chosen: bool
    passed: bool  # True if it meets all goals
    reasons: list[str]  # goals that it misses, or why it was not measured or not trained
    pareto: bool
    error: str | None  # why it was not measured, or None
    parameters: int | None  # number of parameters; None if it could not be built
    flops: int | None  # floating-point operations for one example; None if it could not be built
    not_counted: dict[str, int]  # number of nodes by op whose floating-point operations are not counted
    fastest: str | None  # the format with the lowest latency; None if it was not measured
    runtimes: dict[str, ModelBenchmark | FailedMeasurement]  # benchmark by format
    train_seconds: float | None  # duration of the training step; None if it was not trained
    metrics: dict[str, Metric]  # metrics by name; empty if it was not evaluated
    delta: dict[str, Difference]  # differences from the best backbone by metric

    @property
    def benchmark(self) -> ModelBenchmark | None:
        """The benchmark in the format with the lowest latency; None if it was not measured."""
        row = self.runtimes.get(self.fastest or "")
        return row if isinstance(row, ModelBenchmark) else None

    @property
    def latency_ms(self) -> float:
        """Median latency of one example in the fastest format; infinite if it was not measured."""
        return self.benchmark.latency["1"].p50 if self.benchmark else float("inf")


@dataclass(frozen=True)
class ComparisonReport:
    """The content of ``comparison.json``."""

    schema_version: ClassVar[int] = 1
    chosen: str
    reason: str
    meets_goals: bool
    task: str  # ``classification`` or ``regression``
    classes: int  # number of values of the head
    image: str
    label: str
    stored_size: list[int]  # height, width and channels of the images in the examples
    input_size: list[int]  # height, width and channels that the backbones read
    goals: list[str]
    objective: str  # the metric that the selected backbone is best at
    confidence: str  # ``interval`` or ``point``
    formats: list[str]  # measured formats
    left_out: dict[str, str]  # formats that were not measured, with the reason
    training: ShortTraining | None
    metric: str | None  # the metric of quality; None if nothing was trained
    threads: int
    seed: int  # seed of weights, examples and the order of the turns
    backbones: list[BackboneResult]
    minutes: float  # time budget of the comparison
    environment: JsonObject  # fingerprint of the machine; empty if nothing was measured
