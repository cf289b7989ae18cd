"""Changes of pushed versions after the push: who withdrew or restored a version, when and why; one file per change.

``versions/8-change-1.json`` is the first change of version 8, and the last one counts. It is written before anything
is moved, so that a killed command can be completed. The files of a withdrawn version are in ``withdrawn/``, which has
the form of a destination (docs/adr/0067-withdrawal.md).
"""

import datetime
import getpass
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.storage import remote_files

RECORDS = "versions"  # manifests, pointers and changes, next to the versions
WITHDRAWN = "withdrawn"

Action = Literal["withdrawn", "restored", "removed"]
Changes = Mapping[int, Sequence["Change"]]


@dataclass(frozen=True)
class Change:
    """One change of a version."""

    schema_version: ClassVar[int] = 1
    version: int
    action: Action  # ``removed`` if somebody moved or deleted the folder without `tfopt withdraw`
    digest: str  # of the version's files
    time: str  # ISO 8601 in UTC
    by: str  # the user of the command; empty for ``removed``
    reason: str
    allow: bool = False  # True if a later run may push the same files again, under another number

    def __str__(self) -> str:
        """Return the change in words.

        >>> str(Change(8, "withdrawn", "", "2026-11-27T10:00:00+00:00", "ada", "wrong labels"))
        'version 8 was withdrawn by ada on 2026-11-27: wrong labels'
        """
        by = f" by {self.by}" if self.by else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"version {self.version} was {self.action}{by} on {self.time[:10]}{reason}"


def read_changes(destination: str) -> dict[int, list[Change]]:
    """Read the changes of each version that has some, oldest first; raise ComponentError if a file is damaged."""
    folder = remote_files.join(destination, RECORDS)
    changes: dict[int, list[Change]] = {}
    names = remote_files.list_names(folder)
    matches = (match for name in names if (match := re.fullmatch(r"(\d+)-change-(\d+)\.json", name)))
    for match in sorted(matches, key=lambda match: int(match[2])):
        address = remote_files.join(folder, match[0])
        content = report_schema.decode(remote_files.read_file(address) or b"", address)
        changes.setdefault(int(match[1]), []).append(report_schema.parse(Change, content, address))
    return changes


def write_change(destination: str, change: Change) -> None:
    """Add a change of a version; raise ComponentError if another process changes the version at this moment."""
    number = len(read_changes(destination).get(change.version, ())) + 1
    text = json.dumps(report_schema.dump(change), indent=1, ensure_ascii=False) + "\n"
    name = f"{RECORDS}/{change.version}-change-{number}.json"
    if not remote_files.create_file(remote_files.join(destination, name), text.encode()):
        received = f"{destination}: another command changes version {change.version} at this moment"
        raise ComponentError(received, "one command at a time", "run it again")


def new_change(version: int, action: Action, digest: str, reason: str, *, allow: bool = False) -> Change:
    """Return a change that the user of this process makes now."""
    try:
        by = "" if action == "removed" else getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        by = str(os.getuid())
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Change(version, action, digest, time, by, reason, allow)


def is_withdrawn(changes: Sequence[Change]) -> bool:
    """Return True if a version with these changes, oldest first, is not served any more."""
    return bool(changes) and changes[-1].action != "restored"
