"""The content of ``drift.json``: what changed between the reference and the served requests, and what to do."""

from dataclasses import dataclass
from typing import ClassVar, Literal

DriftDecision = Literal["nothing", "recalibrate", "retrain"]


@dataclass(frozen=True)
class Change:
    """A quantity that was compared between the reference and the served requests."""

    subject: str  # a column of an input, an activation, a class, or an output
    kind: str  # a key of ``KINDS`` in `components/check_drift/decision.py`
    reference: float | None  # None for a distance between distributions
    served: float | None
    change: float  # the difference of the two, or the distance
    # its interval; those of all changes hold together with the probability `DriftReport.level`
    low: float
    high: float
    limit: float | None  # None for changes that are only reported
    is_exceeded: bool  # True if the whole interval is beyond the limit
    note: str = ""


@dataclass(frozen=True)
class ComparedSample:
    """One of the two samples."""

    source: str
    requests: int
    records: int  # without those that lack an input of the model


@dataclass(frozen=True)
class DriftReport:
    """The content of ``drift.json``."""

    schema_version: ClassVar[int] = 1
    decision: DriftDecision
    reasons: list[str]  # empty if there is nothing to do
    model: str
    digest: str
    parent: str | None  # the float model; None if none was passed
    reference: ComparedSample
    served: ComparedSample
    level: float  # probability that all intervals hold
    changes: list[Change]
    notes: list[str]
    time: str = ""  # of the comparison, ISO 8601 in UTC; empty in reports of earlier versions
