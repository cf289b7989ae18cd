"""Run history: metrics of earlier runs, one JSON file per run in the folder ``history`` of the destination.

`push_model` writes it and `select_model` reads it (docs/adr/0013-run-history-in-the-destination.md).
"""

import datetime
import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from tfopt.artifacts import Decision
from tfopt.errors import ComponentError
from tfopt.metric_table import LOADS, SIZES, names_of_kind
from tfopt.model_store.withdrawals import is_served, read_changes
from tfopt.reports import report_schema
from tfopt.reports.benchmark_report import BenchmarkReport
from tfopt.reports.decision_report import MeasurementConditions, ModelDecision, QualityConditions, Role, SpeedConditions
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.reports.pushed_report import PushedReport
from tfopt.storage import remote_files

FOLDER = "history"
MIN_RUNS = 3  # with fewer comparable runs, no regression is reported
WINNER: Final[Role] = "winner"
PARENT: Final[Role] = "parent"

SPEED = names_of_kind("clock", "process", "load")
THROUGHPUT, CAPACITY = "throughput", "capacity"
# Half of the 95 % interval of a median is this factor times the standard deviation over the root of the sample size.
MEDIAN_HALF_INTERVAL = 1.96 * 1.2533
MAD_TO_DEVIATION = 1.4826  # scales the median absolute deviation to the standard deviation of a normal distribution


@dataclass(frozen=True)
class ModelRecord:
    """The metrics of one model of a run."""

    name: str
    digest: str
    format: str
    metrics: dict[str, float]
    disturbed: list[str] = field(default_factory=list)  # metrics of speed, by other processes: not compared later

    def undisturbed(self, metric: str) -> float | None:
        """Return the value of a metric; None if it was not measured, or other processes disturbed it."""
        return None if metric in self.disturbed else self.metrics.get(metric)


@dataclass(frozen=True)
class RunRecord:
    """The content of one file of the run history."""

    schema_version: ClassVar[int] = 1
    decision: str  # SHA-256 of ``decision.json``
    time: str  # when the run was recorded, ISO 8601 in UTC
    blessed: bool  # True if the selected model was blessed and pushed
    version: int | None  # that the selected model was pushed as
    conditions: MeasurementConditions
    winner: ModelRecord
    parent: ModelRecord
    reason: str = ""  # why it was pushed or not; empty in records of earlier versions
    # of tfopt and of the libraries that affect the model of the push; empty if none was pushed
    versions: dict[str, str] = field(default_factory=dict)
    regressions: list[str] = field(default_factory=list)  # the sentences of the decision

    def model(self, role: Role) -> ModelRecord:
        """Return the model with this role."""
        return self.winner if role == WINNER else self.parent

    @property
    def pushed_model(self) -> ModelRecord:
        """The model of ``version``: the selected one, or the baseline if that was pushed instead."""
        return self.winner if self.blessed else self.parent


@dataclass(frozen=True)
class HistoricalMedian:
    """The median of a metric over a number of earlier runs, and half of its 95 % interval."""

    value: float
    half_interval: float
    runs: int

    @property
    def description(self) -> str:
        """Return what was measured, in words."""
        return f"the median of the last {self.runs} blessed runs"

    @property
    def deviation(self) -> float:
        """Return the standard deviation of one run."""
        return self.half_interval * math.sqrt(self.runs) / MEDIAN_HALF_INTERVAL


@dataclass(frozen=True)
class RunHistory:
    """The last blessed runs, oldest first, and the measurement conditions of the current run."""

    runs: Sequence[RunRecord]
    conditions: MeasurementConditions

    def values(self, role: Role, metric: str) -> list[float | None]:
        """List a metric of each run's winner or parent; None where it is missing, disturbed or not comparable."""
        return [
            run.model(role).undisturbed(metric) if is_comparable(run.conditions, self.conditions, metric) else None
            for run in self.runs
        ]

    def reference(self, role: Role, metric: str) -> HistoricalMedian | None:
        """Compute the median that a metric is compared with; None if fewer than `MIN_RUNS` runs are comparable."""
        values = [value for value in self.values(role, metric) if value is not None]
        if len(values) < MIN_RUNS:
            return None
        median = statistics.median(values)
        deviation = MAD_TO_DEVIATION * statistics.median(abs(value - median) for value in values)
        return HistoricalMedian(median, MEDIAN_HALF_INTERVAL * deviation / len(values) ** 0.5, len(values))


def measurement_conditions(evaluation: EvaluationReport, benchmark: BenchmarkReport) -> MeasurementConditions:
    """Return what two runs must share for their metrics to be comparable."""
    cpu = benchmark.environment.get("cpu") or {}
    return MeasurementConditions(
        QualityConditions(evaluation.task, evaluation.label, evaluation.split),
        SpeedConditions(cpu.get("model"), benchmark.threads, benchmark.batch_sizes),
        benchmark.load,
    )


def is_comparable(one: MeasurementConditions, other: MeasurementConditions, metric: str) -> bool:
    """Return True if a metric is comparable between two runs with these conditions."""
    if metric in SIZES:
        return True
    if metric in LOADS and one.load != other.load:
        return False
    return one.speed == other.speed if metric in SPEED else one.quality == other.quality


def serving_rates(model: ModelRecord, baseline: ModelRecord) -> tuple[float, float] | None:
    """Return the capacity of two models, else their throughput; None if one was not measured, or was disturbed."""
    for metric in (CAPACITY, THROUGHPUT):
        rate, other = model.undisturbed(metric), baseline.undisturbed(metric)
        if rate and other:
            return rate, other
    return None


def read_runs(destination: str | Path, last: int) -> list[RunRecord]:
    """Read the last blessed runs of a destination, oldest first; see `read_all_runs` for errors.

    Runs whose version was withdrawn, or is a canary, are no reference for later ones.
    """
    changes = read_changes(str(destination))
    # Numbers of versions grow; the clock of a machine may have been set back.
    blessed = (
        run for run in read_all_runs(destination) if run.blessed and is_served(changes.get(run.version or 0, ()))
    )
    return sorted(blessed, key=lambda run: (run.version or 0, run.time, run.decision))[-last:]


def read_all_runs(destination: str | Path, last: int | None = None) -> list[RunRecord]:
    """Read the last runs of a destination, blessed or not, by their time; an empty list if it has no run history.

    Raises:
        ComponentError: If a file in the history is not the record of a run.
    """
    address = remote_files.join(str(destination), FOLDER)
    if remote_files.is_remote(address) and remote_files.list_remote_files(address):
        address = remote_files.local_copy(address)
    folder = remote_files.local_path(address)
    runs = _read_last(folder.glob("*.json"), last) if folder.is_dir() else []
    return sorted(runs, key=lambda run: (run.time, run.decision))


def write_run(destination: str | Path, decision: Decision, pushed: PushedReport) -> str:
    """Write the record of a run and return its path; the record of the same decision stays (a step may be retried).

    Raises:
        OSError: If the folder cannot be written. It then has no file of this run.
        ComponentError: If the object store cannot be written.
    """
    digest = hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()
    content = decision.load()
    record = RunRecord(
        decision=digest,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
        blessed=content.blessed and pushed.pushed and not pushed.fallback,
        version=pushed.version,
        conditions=content.conditions,
        winner=_record(content.chosen),
        parent=_record(content.parent),
        reason=pushed.reason,
        versions=pushed.versions,
        regressions=content.history.regressions,
    )
    text = json.dumps(report_schema.dump(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    address = remote_files.join(str(destination), f"{FOLDER}/{digest[:16]}.json")
    remote_files.create_file(address, text.encode())
    return address


def _record(model: ModelDecision) -> ModelRecord:
    return ModelRecord(model.name, model.digest, model.format, model.metrics, model.disturbed)


def _read_last(files: Iterable[Path], last: int | None) -> list[RunRecord]:
    """Read the records of the last runs; the others are decoded for their times only, which is seven times as fast."""
    with report_schema.record_errors(RunRecord):
        contents = [(report_schema.decode(remote_files.read_file(str(file)) or b"", str(file)), file) for file in files]
        contents.sort(key=lambda pair: str(pair[0].get("time")))
        chosen = contents[-last:] if last else contents
        runs = [report_schema.parse(RunRecord, content, str(file)) for content, file in chosen]
        for run, (_, file) in zip(runs, chosen, strict=True):
            if not _is_time(run.time):
                raise ComponentError(f"{file}: time {run.time[:60]!r}", "a time in ISO 8601 with its zone", "")
        return runs


def _is_time(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
