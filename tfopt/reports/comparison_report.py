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
    """The training of the backbones, and the evaluation after it.

    Attributes:
        records: Largest number of examples per epoch.
        split: Split of the evaluation.
        best: The backbone with the best validation, which the others are compared with.
    """

    epochs: int
    records: int
    batch_size: int
    split: str
    counts: RecordCounts
    interval: IntervalMethod
    best: str


@dataclass(frozen=True)
class BackboneResult:
    """The results of one backbone.

    Attributes:
        name: Name of the backbone with its width multiplier.
        builder: Name of its function in ``keras.applications``.
        alpha: Width multiplier.
        module: Path of its Python module, relative to the report's folder.
        passed: True if it meets all goals.
        reasons: Goals that it misses, or why it was not measured or not trained.
        error: Why it was not measured, or None.
        parameters: Number of parameters; None if it could not be built.
        flops: Floating-point operations for one example; None if it could not be built.
        not_counted: Number of nodes by op whose floating-point operations are not counted.
        fastest: The format with the lowest latency; None if it was not measured.
        runtimes: Benchmark by format.
        train_seconds: Duration of the training step; None if it was not trained.
        metrics: Metrics by name; empty if it was not evaluated.
        delta: Differences from the best backbone by metric.
    """

    name: str
    builder: str
    alpha: float
    module: str
    chosen: bool
    passed: bool
    reasons: list[str]
    pareto: bool
    error: str | None
    parameters: int | None
    flops: int | None
    not_counted: dict[str, int]
    fastest: str | None
    runtimes: dict[str, ModelBenchmark | FailedMeasurement]
    train_seconds: float | None
    metrics: dict[str, Metric]
    delta: dict[str, Difference]

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
    """The content of ``comparison.json``.

    Attributes:
        task: ``classification`` or ``regression``.
        classes: Number of values of the head.
        stored_size: Height, width and channels of the images in the examples.
        input_size: Height, width and channels that the backbones read.
        objective: The metric that the selected backbone is best at.
        confidence: ``interval`` or ``point``.
        formats: Measured formats.
        left_out: Formats that were not measured, with the reason.
        metric: The metric of quality; None if nothing was trained.
        seed: Seed of weights, examples and the order of the turns.
        minutes: Time budget of the comparison.
        environment: Fingerprint of the machine; empty if nothing was measured.
    """

    schema_version: ClassVar[int] = 1
    chosen: str
    reason: str
    meets_goals: bool
    task: str
    classes: int
    image: str
    label: str
    stored_size: list[int]
    input_size: list[int]
    goals: list[str]
    objective: str
    confidence: str
    formats: list[str]
    left_out: dict[str, str]
    training: ShortTraining | None
    metric: str | None
    threads: int
    seed: int
    backbones: list[BackboneResult]
    minutes: float
    environment: JsonObject
