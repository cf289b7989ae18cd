"""Deliver notifications at least once: they are written to the run's folder first, and sent again until they arrive.

An event is in the outbox before it is sent, and leaves it after the receiver has taken it. A process that is killed in
between repeats it, with the same identifier, and one that is killed before it finds the event again.
"""

import datetime
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tfopt.errors import ComponentError
from tfopt.notifications.events import Event, find_destination_events, find_run_events
from tfopt.notifications.receiver import NoAnswerError, Receiver, RefusalError
from tfopt.reports import report_schema
from tfopt.storage import staging
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.run_folder import OUTBOX

SEEN = 3000  # identifiers that are remembered; a destination has those of its last runs and of all withdrawals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outbox:
    """The content of the file."""

    schema_version: ClassVar[int] = 1
    # when pipeline and destinations were read for the first time, ISO 8601: what happened before is not reported
    since: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)  # identifiers of events that are not new
    pending: list[Event] = field(default_factory=list)  # not delivered yet, oldest first


@dataclass(frozen=True)
class Source:
    """A pipeline, its run's folder and the destinations that it pushes to."""

    pipeline: str
    root: Path  # the run's folder
    destinations: Sequence[str] = ()


@dataclass(frozen=True)
class Delivery:
    """The result of a command."""

    schema_version: ClassVar[int] = 1
    delivered: list[Event]
    waiting: list[Event]  # sent again by the next command
    errors: list[str]  # why, or why a destination was not read


def notify(receiver: Receiver, source: Source) -> Delivery:
    """Send notifications about new events, and those that wait; raise OSError if the outbox cannot be written."""
    file = source.root / OUTBOX
    file.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(file.parent):
        errors: list[str] = []
        outbox = _add_events(_read(file), receiver, source, errors)
        _write(file, outbox)
        delivered = []
        for event in outbox.pending:
            try:
                receiver.send(event)
            except RefusalError as error:  # of this notification: it may take others
                errors.append(f"{receiver.name} refused {event.kind}: {error}")
                continue
            except NoAnswerError as error:
                errors.append(f"{receiver.name}: {error}")
                break
            delivered.append(event)
            outbox = replace(outbox, pending=[other for other in outbox.pending if other.id != event.id])
            _write(file, outbox)
    return Delivery(delivered, outbox.pending, list(dict.fromkeys(errors)))


def _add_events(outbox: Outbox, receiver: Receiver, source: Source, errors: list[str]) -> Outbox:
    """Add new events of the kinds that the receiver gets."""
    now = datetime.datetime.now(datetime.UTC)
    since = dict(outbox.since)
    events = find_run_events(source.pipeline, source.root, has_destination=bool(source.destinations))
    earlier = {event.id for event in events} if source.pipeline not in since else set()
    for place in (source.pipeline, *source.destinations):
        since.setdefault(place, now.isoformat(timespec="seconds"))
    for destination in source.destinations:
        first = datetime.datetime.fromisoformat(since[destination])
        try:
            there = find_destination_events(source.pipeline, destination, receiver.stale_days, first, now)
        except (ComponentError, OSError) as error:
            errors.append(f"{destination}: {error.received if isinstance(error, ComponentError) else error}")
            if destination not in outbox.since:  # what happened before is not known yet
                del since[destination]
            continue
        events += there
        if destination not in outbox.since:
            earlier |= {event.id for event in there if event.kind != "stale"}
    reported = {*outbox.seen, *earlier}
    new = [event for event in events if event.id not in reported and event.kind in receiver.events]
    seen = [*outbox.seen, *(event.id for event in events if event.id not in outbox.seen)]
    return Outbox(since, seen[-SEEN:], [*outbox.pending, *new])


def _read(file: Path) -> Outbox:
    return report_schema.parse_record(Outbox, file.read_bytes(), str(file)) if file.is_file() else Outbox()


def _write(file: Path, outbox: Outbox) -> None:
    text = json.dumps(report_schema.dump(outbox), indent=1, ensure_ascii=False)
    staging.replace_file(file, f"{text}\n".encode())
