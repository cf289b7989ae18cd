"""Events that a notification reports, found in what a run's folder and its destinations record.

They are found again by each command, with the same identifiers, so that a killed process loses none.
"""

import datetime
import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

from tfopt.artifacts import Decision
from tfopt.model_store.run_history import RunRecord, read_all_runs
from tfopt.model_store.withdrawals import is_withdrawn, read_changes
from tfopt.run_records.run_record import read_records
from tfopt.storage import remote_files

Kind = Literal["failed", "not_blessed", "regressed", "stale", "withdrawn"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RUNS = 100  # of a destination that are read


@dataclass(frozen=True)
class Event:
    """Something that happened to a model: the content of a notification."""

    schema_version: ClassVar[int] = 1
    id: str  # the same in each notification about the event, so that a receiver can ignore repetitions
    kind: Kind
    time: str  # ISO 8601; of ``stale``: when it was found
    pipeline: str
    destination: str | None  # the folder or address of pushed versions; None if the run has none
    version: int | None  # that was withdrawn, or has a regression
    text: str


@dataclass(frozen=True)
class Place:
    """The place whose events are reported."""

    pipeline: str
    destination: str | None

    def event(self, kind: Kind, key: str, time: str, text: str, version: int | None = None) -> Event:
        """Return an event; the key distinguishes it from others of its kind."""
        identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.destination or self.pipeline}#{kind}#{key}")
        return Event(str(identifier), kind, time, self.pipeline, self.destination, version, text)


def find_run_events(pipeline: str, root: Path, *, has_destination: bool) -> list[Event]:
    """Return the events of the last run in a folder; its decision is reported by the destination if it has one."""
    record = read_records(root).get(root) if root.is_dir() else None
    place = Place(pipeline, None)
    if record is None:
        return []
    if record.state == "failed" or (record.state == "interrupted" and record.ended is None):
        text = record.error or f"the process {record.process} of the run on {record.host} was killed"
        return [place.event("failed", record.started, record.ended or record.started, f"the run failed: {text}")]
    if has_destination or record.report is None:
        return []
    decision = Decision(str((root / record.report).parent))
    if not (decision.path / Decision.file).is_file():  # removed since then
        return []
    content, key = decision.load(), hashlib.sha256((decision.path / Decision.file).read_bytes()).hexdigest()
    return [
        *_decision_events(place, key, record.ended or record.started, content.blessed, content.reason, None),
        *_regression_events(place, key, record.ended or record.started, content.history.regressions, None),
    ]


def find_destination_events(
    pipeline: str, destination: str, stale_days: float, since: datetime.datetime, now: datetime.datetime
) -> list[Event]:
    """Return the events of a destination, oldest first; if nothing was ever pushed, it is stale ``since`` then.

    Raises:
        ComponentError: If the destination cannot be read.
    """
    place = Place(pipeline, destination)
    runs, changes = read_all_runs(destination, RUNS), read_changes(destination)
    events = [event for run in runs for event in _events_of_run(place, run)]
    for version, of_version in changes.items():
        events += [
            place.event("withdrawn", f"{version} {change.time}", change.time, str(change), version)
            for change in of_version
            if is_withdrawn([change])
        ]
    pushed = [run.time for run in runs if run.blessed and not is_withdrawn(changes.get(run.version or 0, ()))]
    last = datetime.datetime.fromisoformat(max(pushed)) if pushed else since
    days = (now - last) / datetime.timedelta(days=1)
    if days > stale_days:  # again after each such period
        text = f"nothing pushed for {days:.0f} days" if pushed else f"never pushed, for {days:.0f} days"
        key = f"{last.isoformat()} {int(days / stale_days)}"
        events.append(place.event("stale", key, now.isoformat(timespec="seconds"), text))
    return sorted(events, key=lambda event: event.time)


def _events_of_run(place: Place, run: RunRecord) -> Iterator[Event]:
    version = run.version if run.blessed else None
    yield from _decision_events(place, run.decision, run.time, run.blessed, run.reason, run.version)
    yield from _regression_events(place, run.decision, run.time, run.regressions, version)


def _decision_events(
    place: Place, key: str, time: str, blessed: bool, reason: str, version: int | None
) -> Iterator[Event]:
    if not blessed:
        yield place.event("not_blessed", key, time, reason or "not blessed", version)


def _regression_events(
    place: Place, key: str, time: str, regressions: list[str], version: int | None
) -> Iterator[Event]:
    if regressions:
        yield place.event("regressed", key, time, "; ".join(regressions), version)


def address_of(destination: str) -> str:
    """Return the address of a destination that is the same from every working folder."""
    is_remote = remote_files.is_remote(destination)
    return destination.rstrip("/") if is_remote else str(remote_files.local_path(destination).absolute())
