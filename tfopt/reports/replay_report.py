"""The content of ``replay.json``: the answers and latency of a model next to those of the served version."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.evaluation_report import Difference, Estimate
from tfopt.reports.serving_report import ServedModel


@dataclass(frozen=True)
class Look:
    """The disagreement after a number of records, at which the comparison may end."""

    records: int
    disagreeing: int
    # the interval of the share; those of all looks hold together with the probability `ReplayReport.level`
    low: float
    high: float


@dataclass(frozen=True)
class SliceDisagreement:
    """The disagreement of the records of a slice, at the last look."""

    feature: str
    value: int | str
    records: int
    disagreeing: int
    low: float
    high: float


@dataclass(frozen=True)
class ReplayedLatency:
    """A percentile of latency in milliseconds, from the arrival of a request to its answer."""

    served: Estimate
    model: Estimate
    difference: Difference  # of the model to the served version, from the same windows of time


@dataclass(frozen=True)
class LatencyWindow:
    """The 99th percentiles of a window of time, which was sent to one model after the other."""

    start: float  # seconds from the first request
    requests: int
    served_p99_ms: float
    model_p99_ms: float


@dataclass(frozen=True)
class GoalResult:
    """The result of a goal."""

    goal: str
    met: bool
    reason: str  # empty if it is met


@dataclass(frozen=True)
class ReplayedTraffic:
    """The requests of a replay."""

    source: str  # form of the recording
    requests: int  # read from it
    records: int
    skipped: int  # requests to other signatures
    seconds: float | None  # from the first to the last; None if the recording has no times
    arrivals: str  # at which times latency was measured, in words; empty if it was not measured


@dataclass(frozen=True)
class ReplayReport:
    """The content of ``replay.json``."""

    schema_version: ClassVar[int] = 1
    blessed: bool  # True if all goals are met
    reason: str
    model: ServedModel
    served: ServedModel | None  # the version that it was compared with; None if no version is served yet
    traffic: ReplayedTraffic
    goals: list[GoalResult]
    level: float  # probability that the intervals hold
    looks: list[Look]  # the last one is the result
    ended: str  # why the comparison of answers ended, in words
    slices: list[SliceDisagreement]
    latency: dict[str, ReplayedLatency]  # by ``p50``, ``p90``, ``p99``; empty if it was not measured
    windows: list[LatencyWindow]
    delay_p99_ms: float | None  # by which the generator itself was late; None without a measurement
    notes: list[str]
