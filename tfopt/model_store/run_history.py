"""Run history: metrics of earlier runs, one JSON file per run in the folder ``history`` of the destination.

`push_model` writes it and `select_model` reads it (docs/adr/0013-run-history-in-the-destination.md).
"""

import contextlib
import datetime
import hashlib
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tfopt.artifacts import Decision, staging
from tfopt.errors import ComponentError, first_line

FOLDER = "history"
MIN_RUNS = 3  # with fewer comparable runs, no regression is reported
WINNER: Final = "winner"
PARENT: Final = "parent"
Role = Literal["winner", "parent"]

SIZES = ("size", "size_gzipped")  # do not depend on the machine
SPEED = ("latency", "latency_p90", "latency_p99", "throughput", "memory", "load")
# Half of the 95 % interval of a median is this factor times the standard deviation over the root of the sample size.
MEDIAN_HALF_INTERVAL = 1.96 * 1.2533
MAD_TO_DEVIATION = 1.4826  # scales the median absolute deviation to the standard deviation of a normal distribution


@dataclass(frozen=True)
class HistoricalMedian:
    """The median of a metric over earlier runs.

    Attributes:
        value: The median.
        half_interval: Half of the 95 % interval of that median.
        runs: The number of runs.
    """

    value: float
    half_interval: float
    runs: int


@dataclass(frozen=True)
class RunHistory:
    """The last blessed runs, oldest first, and the measurement conditions of the current run."""

    runs: Sequence[Mapping[str, Any]] = ()
    conditions: Mapping[str, Any] | None = None

    def values(self, role: Role, metric: str) -> list[float | None]:
        """List a metric of each run's winner or parent; None where it is missing or not comparable."""
        return [run[role]["metrics"].get(metric) if self._is_comparable(run, metric) else None for run in self.runs]

    def reference(self, role: Role, metric: str) -> HistoricalMedian | None:
        """Compute the median that a metric is compared with; None if fewer than `MIN_RUNS` runs are comparable."""
        values = [value for value in self.values(role, metric) if value is not None]
        if len(values) < MIN_RUNS:
            return None
        median = statistics.median(values)
        deviation = MAD_TO_DEVIATION * statistics.median(abs(value - median) for value in values)
        return HistoricalMedian(median, MEDIAN_HALF_INTERVAL * deviation / len(values) ** 0.5, len(values))

    def _is_comparable(self, run: Mapping[str, Any], metric: str) -> bool:
        return metric in SIZES or bool(self.conditions and is_comparable(run["conditions"], self.conditions, metric))


def measurement_conditions(evaluation: Mapping[str, Any], benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two runs must share for their metrics to be comparable: task and data, CPU and benchmark settings."""
    cpu = (benchmark.get("environment") or {}).get("cpu") or {}
    return {
        "quality": {name: evaluation.get(name) for name in ("task", "label", "split")},
        "speed": {
            "cpu": cpu.get("model"),
            "threads": benchmark.get("threads"),
            "batch_sizes": benchmark.get("batch_sizes"),
        },
    }


def is_comparable(one: Mapping[str, Any], other: Mapping[str, Any], metric: str) -> bool:
    """Return True if a metric is comparable between two runs, given their `measurement_conditions`."""
    kind = "speed" if metric in SPEED else "quality"
    return metric in SIZES or bool(one[kind] == other[kind])


def read_runs(destination: str | Path, last: int) -> list[dict[str, Any]]:
    """Read the last blessed runs of a destination, oldest first; an empty list if it has no run history.

    Raises:
        ComponentError: If a file in the history is not the record of a run.
    """
    folder = Path(destination).expanduser() / FOLDER
    runs = [_read_run(file) for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    blessed = sorted((run for run in runs if run["blessed"]), key=lambda run: (run["time"], run["decision"]))
    return blessed[-last:]


def write_run(destination: str | Path, decision: Decision, pushed: Mapping[str, Any]) -> Path:
    """Write the record of a run; the record of the same decision is not overwritten (a step may be retried).

    Args:
        destination: The folder of pushed versions.
        decision: The decision of this run.
        pushed: The content of ``pushed.json``.

    Raises:
        OSError: If the folder cannot be written. It then has no file of this run.
    """
    folder = Path(destination).expanduser() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()
    content = decision.read()
    record = {
        "decision": digest,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
        "blessed": bool(content["blessed"] and pushed["pushed"] and not pushed["fallback"]),
        "version": pushed["version"],
        "conditions": content["conditions"],
        WINNER: _model_record(next(row for row in content["models"] if row["chosen"])),
        PARENT: _model_record(next(row for row in content["models"] if row["parent"])),
    }
    staging.remove_abandoned(folder)
    file, stage = folder / f"{digest[:16]}.json", staging.new_path(folder)
    try:
        with stage.open("x") as stream:
            stream.write(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(stage, file)  # atomic, and never replaces an existing file
    finally:
        stage.unlink(missing_ok=True)
    return file


def _model_record(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("name", "digest", "format", "metrics")}


def _read_run(file: Path) -> dict[str, Any]:
    try:
        run = json.loads(file.read_text())
        _ = run["time"], run["decision"], run["blessed"], run["conditions"]["quality"], run["conditions"]["speed"]
        _ = run[WINNER]["metrics"], run[PARENT]["metrics"]
    except (ValueError, KeyError, TypeError) as error:
        raise ComponentError(
            f"{file}: {type(error).__name__}: {first_line(error)}",
            "the record of a run, as push_model writes it",
            "remove the file, or move it elsewhere",
        ) from error
    return run  # type: ignore[no-any-return]
