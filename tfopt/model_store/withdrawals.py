"""Changes of pushed versions: who withdrew, restored or promoted a version, when and why; one file per change.

``versions/8-change-1.json`` is the first change of version 8, and the last one counts. It is written before anything
is moved, so that a killed command can be completed. The files of a withdrawn version are in ``withdrawn/``, which has
the form of a destination (docs/adr/0067-withdrawal.md), and those of a canary in ``canary/NAME/``, where NAME is the
name of the destination (docs/adr/0080-canaries.md).
"""

import datetime
import getpass
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.storage import remote_files

RECORDS = "versions"  # manifests, pointers and changes, next to the versions
WITHDRAWN = "withdrawn"
CANARY = "canary"
POINTER = ".json"  # in an object store: the version exists
ALL = 100  # percent of the requests
IN_PROGRESS = datetime.timedelta(minutes=2)  # from a change on, for which its command may take to move the files

# ``pushed`` is recorded of a canary only, ``removed`` if somebody moved or deleted a folder without `tfopt withdraw`.
Action = Literal["withdrawn", "restored", "removed", "pushed", "promoted"]
Changes = Mapping[int, Sequence["Change"]]


@dataclass(frozen=True)
class Change:
    """One change of a version."""

    schema_version: ClassVar[int] = 1
    version: int
    action: Action
    digest: str  # of the version's files
    time: str  # ISO 8601 in UTC
    by: str  # the user of the command; empty for ``removed``
    reason: str
    allow: bool = False  # True if a later run may push the same files again, under another number
    complete: bool = True  # False until the files and registrations have followed
    share: int = ALL  # percent of the requests that it is for; less than all for a canary
    served: int | None = None  # of a canary, also a withdrawn one: the version that answers the other requests

    def __str__(self) -> str:
        """Return the change in words.

        >>> str(Change(8, "withdrawn", "", "2026-11-27T10:00:00+00:00", "ada", "wrong labels"))
        'version 8 was withdrawn by ada on 2026-11-27: wrong labels'
        >>> str(Change(8, "promoted", "", "2026-11-27T10:00:00+00:00", "ada", "", share=50))
        'version 8 was promoted by ada on 2026-11-27, as a canary with 50% of the requests'
        """
        by = f" by {self.by}" if self.by else ""
        share = f", as a canary with {self.share}% of the requests" if is_canary([self]) else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"version {self.version} was {self.action}{by} on {self.time[:10]}{share}{reason}"


def read_changes(destination: str) -> dict[int, list[Change]]:
    """Read the changes of each version that has some, oldest first; raise ComponentError if a file is damaged."""
    folder = remote_files.join(destination, RECORDS)
    changes: dict[int, list[Change]] = {}
    names = remote_files.list_names(folder)
    matches = (match for name in names if (match := re.fullmatch(r"(\d+)-change-(\d+)\.json", name)))
    for match in sorted(matches, key=lambda match: int(match[2])):
        address = remote_files.join(folder, match[0])
        change = report_schema.parse_record(Change, remote_files.read_file(address) or b"", address)
        changes.setdefault(int(match[1]), []).append(change)
    return changes


def write_change(destination: str, change: Change, before: Changes) -> None:
    """Add a change of a version to the changes before, by which it was chosen.

    Raises:
        ComponentError: If another process changes the version at this moment. In a store, which has no locks, two
            processes that move the same files in opposite directions could lose them.
    """
    of_version = before.get(change.version, ())
    is_moving = remote_files.is_remote(destination) and bool(of_version) and _is_in_progress(of_version[-1])
    address = _address(destination, change, len(of_version) + 1)
    if is_moving or not remote_files.create_file(address, _text(change)):
        received = f"{destination}: another command changes version {change.version} at this moment"
        fix = "run it again when that command has ended; if it was stopped, repeat it first, or wait "
        raise ComponentError(received, "one command at a time", fix + f"{IN_PROGRESS.seconds // 60} minutes")


def _is_in_progress(change: Change) -> bool:
    """Return True if the command of a change may still move files; its machine may have another time of day."""
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(change.time)
    return not change.complete and abs(age) < IN_PROGRESS


def complete_change(destination: str, change: Change) -> Change:
    """Record that a change was carried out, and return it."""
    recorded, completed = read_changes(destination)[change.version], replace(change, complete=True)
    if not change.complete and change in recorded:
        remote_files.write_file(_address(destination, change, recorded.index(change) + 1), _text(completed))
    return completed


def stopped_version(changes: Changes, action: Action) -> int | None:
    """Return the version of the last change if that is such an action and its command was stopped before the end."""
    latest = (of_version[-1] for of_version in changes.values())
    last = max(latest, key=lambda change: change.time, default=None)
    return last.version if last and last.action == action and not last.complete else None


def _address(destination: str, change: Change, number: int) -> str:
    return remote_files.join(destination, f"{RECORDS}/{change.version}-change-{number}.json")


def _text(change: Change) -> bytes:
    return (json.dumps(report_schema.dump(change), indent=1, ensure_ascii=False) + "\n").encode()


def new_change(
    version: int,
    action: Action,
    digest: str,
    reason: str,
    *,
    allow: bool = False,
    share: int = ALL,
    served: int | None = None,
) -> Change:
    """Return a change that the user of this process makes now."""
    by = "" if action == "removed" else user_name()
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    return Change(version, action, digest, time, by, reason, allow, share=share, served=served)


def user_name() -> str:
    """Return the name of the user of this process; the number in a container whose user has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def served_versions(destination: str) -> dict[int, str]:
    """Return the path or address of each version that is served to all, by its number, oldest first.

    Versions that are withdrawn, and not moved yet, are left out. The name of a folder may have leading zeros.
    """
    if remote_files.is_remote(destination):
        names = [Path(name) for name in remote_files.list_names(remote_files.join(destination, RECORDS))]
        numbers = {int(name.stem) for name in names if name.stem.isdecimal() and name.suffix == POINTER}
        addresses = {number: remote_files.join(destination, str(number)) for number in numbers}
    else:
        folder = remote_files.local_path(destination).absolute()
        names = [folder / name for name in remote_files.list_names(str(folder))]
        addresses = {int(path.name): str(path) for path in names if _is_number(path.name) and path.is_dir()}
    return {number: addresses[number] for number in sorted(addresses.keys() - hidden_versions(destination))}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def hidden_versions(destination: str) -> set[int]:
    """Return the versions that are not served, or not to all, and whose files may not be moved yet."""
    return {
        number
        for number, changes in read_changes(destination).items()
        if changes[-1].action == "withdrawn" or is_canary(changes)
    }


def is_withdrawn(changes: Sequence[Change]) -> bool:
    """Return True if a version with these changes, oldest first, is not served any more."""
    return bool(changes) and changes[-1].action in ("withdrawn", "removed")


def is_canary(changes: Sequence[Change]) -> bool:
    """Return True if a version with these changes, oldest first, is a canary: for a share of the requests."""
    return bool(changes) and not is_withdrawn(changes) and changes[-1].share < ALL


def is_served(changes: Sequence[Change]) -> bool:
    """Return True if a version with these changes, oldest first, is served to all."""
    return not is_withdrawn(changes) and not is_canary(changes)


def find_canary(changes: Changes, newest: int | None) -> Change | None:
    """Return the last change of the canary that is newer than the newest served version; None if there is none."""
    canaries = [number for number, of_version in changes.items() if is_canary(of_version) and number > (newest or 0)]
    return changes[max(canaries)][-1] if canaries else None


def canary_folder(destination: str, address: str | None = None) -> str:
    """Return the folder of the canaries of a destination, which has the form of a destination and its name.

    With ``address``, under which the destination is read elsewhere, it is below that.

    >>> canary_folder("s3://models/digits"), canary_folder("/served/digits", "pvc://claim/models")
    ('s3://models/digits/canary/digits', 'pvc://claim/models/canary/digits')
    """
    name = destination.rstrip("/").rpartition("/")[2]
    return remote_files.join(address or destination, f"{CANARY}/{name}")


def destination_of(folder: str) -> str:
    """Return the destination of a folder with versions, which may be that of its canaries or withdrawn versions.

    >>> destination_of("/served/digits/canary/digits"), destination_of("/served/digits/withdrawn")
    ('/served/digits', '/served/digits')
    """
    place, _, name = folder.rstrip("/").rpartition("/")
    if name == WITHDRAWN:
        return place
    destination = place.removesuffix(f"/{CANARY}")
    return destination if place != destination and canary_folder(destination) == folder.rstrip("/") else folder
