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
    """A sentence of the report."""

    kind: str  # ``bottleneck``, a verdict, ``failed``, ``loop`` or ``hint``
    text: str  # the sentence


@dataclass(frozen=True)
class StepParts:
    """Milliseconds of a step by what causes them."""

    wait: float  # added by the input
    host: float  # added by Python
    device: float  # the model's operations
    all: float


@dataclass(frozen=True)
class PartTime:
    """The measured time of a part of a step."""

    ms: float  # median, in milliseconds
    step_over_it: Estimate | None  # the time of a step divided by it; None if they were not measured in the same rounds


@dataclass(frozen=True)
class LoopTime:
    """A loop or a Python call at a line of the module."""

    where: str  # ``step`` or ``preprocess``
    kind: str  # ``python``, ``map_fn``, ``while`` or ``unrolled``
    line: int
    code: str
    independent: bool | None  # True if no round needs another one; None if there are no rounds
    copies: int  # number of copies of the most frequent operation
    runs: float  # the fraction of all executed operations that belongs to this line; those in a loop count per round
    forward: float  # the fraction of all executed operations that are not gradients
    ms: float | None  # milliseconds per step in the profiler's trace; None for the preprocessing


@dataclass(frozen=True)
class VariationResult:
    """The measurement of a change."""

    name: str
    where: Literal["plan", "module", "environment", "examples", "batch"]  # who can make it: see `Variation`
    note: str  # why it is not in the plan
    settings: JsonObject  # the settings that a plan may contain, and the batch size, with the change
    speedup: SpeedupEstimate | None  # speedup over the unchanged training; None if it was not measured
    example_us: float | None  # microseconds per example (median); None if it was not measured
    memory_bytes: int
    error: str | None  # why it was not measured, or None


@dataclass(frozen=True)
class PlannedSettings:
    """The part of ``plan.json`` that `train` reads."""

    schema_version: ClassVar[int] = 1
    settings: JsonObject  # parameters of `train`, with their values
    # fingerprint of the machine that the settings were measured on; empty if it is unknown
    environment: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrainingPlanReport(PlannedSettings):
    """The content of ``plan.json``."""

    bottleneck: Bottleneck
    findings: list[Finding]  # the sentences of the report, the bottleneck first
    baseline: JsonObject  # the settings of the unchanged training
    step_ms: StepParts  # the parts of a step
    parts: dict[str, PartTime]  # the times that the parts are computed from, by name
    stages_ms: dict[str, float]  # milliseconds of a batch in each stage of the input alone
    fixed_ms: float  # milliseconds of a step without any example, extrapolated
    # milliseconds of operations per step by kind, summed over threads, the longest first
    operations_ms: dict[str, float]
    loops: list[LoopTime]
    trials: list[VariationResult]
    memory_bytes: dict[str, int]  # peak memory of the process and of each GPU
    examples: int  # number of examples of the split ``train``
    first_step_s: float  # seconds of the first step, with tracing and compilation
    devices: list[str]
    interval: dict[str, Any]  # method, level and ``min_effect`` of the confidence intervals
    # `operations_ms` by layer, with its gradients, and of the optimizer; plans of earlier releases do not have it
    layers_ms: dict[str, float] = field(default_factory=dict)
