"""Record what a withdrawal of a pushed version has to change elsewhere: ``versions/8.pushed.json``."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from tfopt.components.push_model.registrations.kind import PushedVersion
from tfopt.reports import report_schema
from tfopt.serving.version_manifest import FOLDER
from tfopt.storage import remote_files

RECORD = ".pushed.json"


@dataclass(frozen=True)
class VersionRecord:
    """The content of the file."""

    schema_version: ClassVar[int] = 1
    digest: str  # of the version's files
    pushed: PushedVersion  # as it is registered
    targets: list[str]  # where it was registered, each as KIND=ADDRESS
    trained: str | None = None  # digest of the Keras model that was stored for the next run with it
    config: str | None = None  # the ``config.pbtxt`` of Triton, which fits this version

    def of_version(self, number: int, path: str | Path, digest: str, config: str | None) -> "VersionRecord":
        """Return a copy with what is known once the version has a number."""
        pushed = replace(self.pushed, number=number, path=str(path))
        return replace(self, digest=digest, pushed=pushed, config=config or None)


def write_record(destination: str, record: VersionRecord) -> None:
    """Write the record of a version, with targets of earlier pushes; raise ComponentError if it cannot be written."""
    address = _address(destination, record.pushed.number)
    before = read_record(destination, record.pushed.number)
    targets = list(dict.fromkeys([*(before.targets if before else ()), *record.targets]))
    content = report_schema.dump(record) | {"targets": targets}
    if before is None or report_schema.dump(before) != content:
        remote_files.write_file(address, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read_record(destination: str, version: int) -> VersionRecord | None:
    """Read the record of a version; None for one that an earlier release pushed."""
    address = _address(destination, version)
    content = remote_files.read_file(address)
    return None if content is None else report_schema.parse_record(VersionRecord, content, address)


def _address(destination: str, version: int) -> str:
    return remote_files.join(destination, f"{FOLDER}/{version}{RECORD}")
