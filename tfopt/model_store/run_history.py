"""The numbers of earlier runs: a file each in the folder ``history`` beside the versions that were pushed.

`push_model` writes them and `select_model` reads them, so they are where the models are that they are about, on every
engine; docs/adr/0013-history-beside-the-versions.md says why there.
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

from tfopt.artifacts import Decision
from tfopt.artifacts import staging as partial
from tfopt.errors import ComponentError, first_line

FOLDER = "history"
FEWEST = 3  # runs; with fewer nothing is called a regression
WINNER: Final = "winner"
PARENT: Final = "parent"
Who = Literal["winner", "parent"]

SIZES = ("size", "size_gzipped")  # the same number on every machine
SPEED = ("latency", "latency_p90", "latency_p99", "throughput", "memory", "load")
# Of a median's 95 % interval, times the scatter of single values over the root of their number.
MEDIAN_DOUBT = 1.96 * 1.2533
MAD = 1.4826  # makes the median distance to the median a standard deviation


@dataclass(frozen=True)
class Reference:
    """What earlier runs had of a metric.

    Attributes:
        value: The median.
        doubt: Half of the 95 % interval of that median.
        runs: How many runs it is of.
    """

    value: float
    doubt: float
    runs: int


@dataclass(frozen=True)
class Past:
    """The last blessed runs, oldest first, and the conditions that numbers must share to be compared with theirs."""

    runs: Sequence[Mapping[str, Any]] = ()
    conditions: Mapping[str, Any] | None = None

    def values(self, who: Who, metric: str) -> list[float | None]:
        """A metric of each run's winner or parent; None where it was measured in other conditions, or not at all."""
        return [run[who]["metrics"].get(metric) if self._comparable(run, metric) else None for run in self.runs]

    def reference(self, who: Who, metric: str) -> Reference | None:
        """What to hold a metric against; None when fewer than `FEWEST` runs can be compared with."""
        found = [value for value in self.values(who, metric) if value is not None]
        if len(found) < FEWEST:
            return None
        median = statistics.median(found)
        scatter = MAD * statistics.median(abs(value - median) for value in found)
        return Reference(median, MEDIAN_DOUBT * scatter / len(found) ** 0.5, len(found))

    def _comparable(self, run: Mapping[str, Any], metric: str) -> bool:
        return metric in SIZES or bool(self.conditions and comparable(run["conditions"], self.conditions, metric))


def conditions(evaluation: Mapping[str, Any], benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share for their numbers to be compared: the question that was asked, and the machine."""
    machine = (benchmark.get("environment") or {}).get("cpu") or {}
    return {
        "quality": {name: evaluation.get(name) for name in ("task", "label", "split")},
        "speed": {
            "cpu": machine.get("model"),
            "threads": benchmark.get("threads"),
            "batch_sizes": benchmark.get("batch_sizes"),
        },
    }


def comparable(one: Mapping[str, Any], other: Mapping[str, Any], metric: str) -> bool:
    """Whether two runs, by their `conditions`, measured a metric alike; sizes are the same everywhere."""
    kind = "speed" if metric in SPEED else "quality"
    return metric in SIZES or bool(one[kind] == other[kind])


def read(destination: str | Path, last: int) -> list[dict[str, Any]]:
    """The last blessed runs kept beside the versions in a folder, oldest first; none when there is no such folder.

    Raises:
        ComponentError: When a file there is no run's.
    """
    folder = Path(destination).expanduser() / FOLDER
    runs = [_read(file) for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    blessed = sorted((run for run in runs if run["blessed"]), key=lambda run: (run["time"], run["decision"]))
    return blessed[-last:]


def write(destination: str | Path, decision: Decision, pushed: Mapping[str, Any]) -> Path:
    """Keep the numbers of a run; a run that was kept already (a step that is tried again) is left as it is.

    Args:
        destination: The folder of the versions.
        decision: Of this run.
        pushed: The content of ``pushed.json``; its version, and whether what was chosen is what went out.

    Raises:
        OSError: When the folder cannot be written. No file of this run is then in it.
    """
    folder = Path(destination).expanduser() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()
    content = decision.read()
    facts = {
        "decision": digest,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
        "blessed": bool(content["blessed"] and pushed["pushed"] and not pushed["fallback"]),
        "version": pushed["version"],
        "conditions": content["conditions"],
        WINNER: _numbers(next(row for row in content["models"] if row["chosen"])),
        PARENT: _numbers(next(row for row in content["models"] if row["parent"])),
    }
    partial.clear(folder)
    file, stage = folder / f"{digest[:16]}.json", partial.name(folder)
    try:
        with stage.open("x") as stream:
            stream.write(json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(stage, file)  # whole or not at all, and never over another's
    finally:
        stage.unlink(missing_ok=True)
    return file


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("name", "digest", "format", "metrics")}


def _read(file: Path) -> dict[str, Any]:
    try:
        run = json.loads(file.read_text())
        _ = run["time"], run["decision"], run["blessed"], run["conditions"]["quality"], run["conditions"]["speed"]
        _ = run[WINNER]["metrics"], run[PARENT]["metrics"]
    except (ValueError, KeyError, TypeError) as error:
        raise ComponentError(
            f"{file}: {type(error).__name__}: {first_line(error)}",
            "the numbers of a run, as push_model keeps them",
            "remove the file, or move it elsewhere",
        ) from error
    return run  # type: ignore[no-any-return]
