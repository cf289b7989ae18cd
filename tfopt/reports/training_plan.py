"""The content of ``plan.json``: the bottleneck that `profile_training` found, and the settings that `train` follows."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.reports.evaluation_report import Estimate
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck: its name, its share of a step, and a sentence."""

    name: str
    share: float
    sentence: str


@dataclass(frozen=True)
class Finding:
    """A sentence of the report.

    Attributes:
        kind: ``bottleneck``, a verdict, ``failed``, ``loop`` or ``hint``.
        text: The sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class StepParts:
    """Milliseconds of a step by what causes them.

    Attributes:
        wait: Added by the input.
        host: Added by Python.
        device: The model's operations.
    """

    wait: float
    host: float
    device: float
    all: float


@dataclass(frozen=True)
class PartTime:
    """The measured time of a part of a step.

    Attributes:
        ms: Median, in milliseconds.
        step_over_it: The time of a step divided by it; None if they were not measured in the same rounds.
    """

    ms: float
    step_over_it: Estimate | None


@dataclass(frozen=True)
class LoopTime:
    """A loop or a Python call at a line of the module.

    Attributes:
        where: ``step`` or ``preprocess``.
        kind: ``python``, ``map_fn``, ``while`` or ``unrolled``.
        independent: True if no round needs another one; None if there are no rounds.
        copies: Number of copies of the most frequent operation.
        runs: The fraction of all executed operations that belongs to this line; those in a loop count per round.
        forward: The fraction of all executed operations that are not gradients.
        ms: Milliseconds per step in the profiler's trace; None for the preprocessing.
    """

    where: str
    kind: str
    line: int
    code: str
    independent: bool | None
    copies: int
    runs: float
    forward: float
    ms: float | None


@dataclass(frozen=True)
class VariationResult:
    """The measurement of a change.

    Attributes:
        where: Who can make it: see `Variation`.
        note: Why it is not in the plan.
        settings: The settings that a plan may contain, and the batch size, with the change.
        speedup: Speedup over the unchanged training; None if it was not measured.
        example_us: Microseconds per example (median); None if it was not measured.
        error: Why it was not measured, or None.
    """

    name: str
    where: Literal["plan", "module", "environment", "examples", "batch"]
    note: str
    settings: JsonObject
    speedup: SpeedupEstimate | None
    example_us: float | None
    memory_bytes: int
    error: str | None


@dataclass(frozen=True)
class PlannedSettings:
    """The part of ``plan.json`` that `train` reads.

    Attributes:
        settings: Parameters of `train`, with their values.
        environment: Fingerprint of the machine that the settings were measured on; empty if it is unknown.
    """

    schema_version: ClassVar[int] = 1
    settings: JsonObject
    environment: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrainingPlanReport(PlannedSettings):
    """The content of ``plan.json``.

    Attributes:
        findings: The sentences of the report, the bottleneck first.
        baseline: The settings of the unchanged training.
        step_ms: The parts of a step.
        parts: The times that the parts are computed from, by name.
        stages_ms: Milliseconds of a batch in each stage of the input alone.
        fixed_ms: Milliseconds of a step without any example, extrapolated.
        operations_ms: Milliseconds of operations per step by kind, summed over threads, the longest first.
        layers_ms: The same by layer, with its gradients, and of the optimizer.
        memory_bytes: Peak memory of the process and of each GPU.
        examples: Number of examples of the split ``train``.
        first_step_s: Seconds of the first step, with tracing and compilation.
        interval: Method, level and ``min_effect`` of the confidence intervals.
    """

    bottleneck: Bottleneck
    findings: list[Finding]
    baseline: JsonObject
    step_ms: StepParts
    parts: dict[str, PartTime]
    stages_ms: dict[str, float]
    fixed_ms: float
    operations_ms: dict[str, float]
    loops: list[LoopTime]
    trials: list[VariationResult]
    memory_bytes: dict[str, int]
    examples: int
    first_step_s: float
    devices: list[str]
    interval: dict[str, Any]
    layers_ms: dict[str, float] = field(default_factory=dict)  # plans of earlier releases do not have it
