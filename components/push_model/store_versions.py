"""Numbered versions in an object store, which has no renames: a version exists once its pointer does.

``DEST/8/…`` holds the files of version 8. ``DEST/versions/8.claim`` reserves the number, by a conditional write, before
the files are copied. ``DEST/versions/8.json``, the pointer, is written last: number, digest and files.
"""

import contextlib
import datetime
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.components.push_model.push_plan import PushResult, plan_push, record_canary
from tfopt.components.push_model.version_record import RECORD, VersionRecord, write_record
from tfopt.components.push_model.versions import (
    MakeConfig,
    Versions,
    complete_changes,
    read_config,
    recorded_config,
    replace_config,
)
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import POINTER, canary_folder, read_changes, served_versions
from tfopt.reports import report_schema
from tfopt.serving.layouts import Version
from tfopt.serving.triton_config import FILE as CONFIG
from tfopt.serving.version_manifest import DESCRIPTIONS, FOLDER, write_description
from tfopt.storage import remote_files, staging
from tfopt.value_types import JsonObject

CLAIM = ".claim"
# From then on the files of a version without a pointer are removed; at once if its process was here and has ended.
ABANDONED_AFTER = datetime.timedelta(days=1)

log = logging.getLogger(__name__)


class StoreVersions:
    """The versions below an address; their names are numbers."""

    def __init__(
        self, destination: str, layout: str, signing_key: str | None = None, predicate: JsonObject | None = None
    ) -> None:
        """Refer to an address, below which there may be nothing yet."""
        self.destination, self.layout = destination.rstrip("/"), layout
        self._signing_key, self._predicate = signing_key, predicate

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield an empty folder for a version's files; raise ComponentError if the store has no conditional writes."""
        remote_files.check_conditional_writes(self.destination)
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            stage = Path(folder, "version")
            stage.mkdir()
            yield stage

    def add(
        self,
        stage: Path,
        record: VersionRecord,
        keep: int | None = None,
        make_config: MakeConfig | None = None,
        share: int | None = None,
    ) -> PushResult:
        """Add a version as the newest one or as a canary, unless it is that already; see `Versions.add`."""
        self.complete_changes()
        plan = plan_push(self, Version(stage).digest, share)
        if plan.refusal:
            return plan.result(None)
        home = StoreVersions(canary_folder(self.destination), self.layout) if plan.share else self
        before = read_config(remote_files.join(self.destination, CONFIG))
        config = make_config(self.destination.rpartition("/")[2], before) if make_config else before

        def describe(version: int) -> None:
            address = remote_files.join(home.destination, CONFIG)
            if config and config != read_config(address):
                remote_files.write_file(address, config.encode())
            write_record(self.destination, record.of_version(version, home.path(version), plan.digest, config))

        if plan.version is not None:
            version = plan.version
            describe(version)
            if self._signing_key:
                local = Path(remote_files.local_copy(home.path(version)))
                write_description(local, home.destination, self._signing_key, self._predicate, stage)
        else:
            version = self._add(stage, plan.digest, describe, home)
        record_canary(self.destination, plan, version)
        self.show_newest()
        self._remove_old(keep)
        return plan.result(version)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """A store has no locks: of two changes at the same time one is refused."""
        return contextlib.nullcontext()

    def complete_changes(self) -> None:
        """Move the files of withdrawn and restored versions that are not moved yet."""
        complete_changes(self.destination)

    def show_newest(self) -> None:
        """Write Triton's configuration of the newest version; again if another command changes which one that is."""
        address = remote_files.join(self.destination, CONFIG)
        while (config := recorded_config(self.destination, self.newest())) and replace_config(address, config):
            pass

    def digest(self, version: int) -> str:
        """Return the digest of a version's files, from its pointer."""
        return str(self._read(version, POINTER).get("digest", ""))

    def numbers(self) -> list[int]:
        """List the numbers of the versions, oldest first, without those that are withdrawn but not moved yet."""
        return list(served_versions(self.destination))

    def newest(self) -> int | None:
        """Return the largest number; None if there is no version."""
        return max(self.numbers(), default=None)

    def path(self, version: int) -> str:
        """Return the address of a version."""
        return remote_files.join(self.destination, str(version))

    def _add(self, stage: Path, digest: str, describe: Callable[[int], None], home: "StoreVersions") -> int:
        version = self._claim_number()
        stage = stage.rename(stage.with_name(str(version)))
        files = {path.relative_to(stage).as_posix(): path.stat().st_size for path in stage.rglob("*") if path.is_file()}
        pointer = {"version": version, "digest": digest, "time": _now().isoformat(), "files": files}
        try:
            remote_files.upload(stage, home.path(version))
            write_description(stage, home.destination, self._signing_key, self._predicate)
            describe(version)
            remote_files.write_file(home._entry(version, POINTER), (json.dumps(pointer, indent=1) + "\n").encode())
        except BaseException:
            with contextlib.suppress(ComponentError):  # the first error is the one to report
                remote_files.remove(home.path(version))
                self.show_newest()
            raise
        return version

    def _claim_number(self) -> int:
        """Reserve the next free number; a number that another push claims meanwhile is skipped."""
        owner = staging.new_path(Path()).name
        claim = json.dumps({"time": _now().isoformat(), "owner": owner}).encode()
        folders = [
            int(name) for name in remote_files.list_names(self.destination) if name.isascii() and name.isdecimal()
        ]
        version = max([0, *folders, *(number for number, _ in self._entries())])
        while True:
            version += 1
            if remote_files.create_file(self._entry(version, CLAIM), claim):
                return version

    def _remove_old(self, keep: int | None) -> None:
        """Remove the oldest versions, each pointer first, and the files of pushes that ended without a pointer."""
        try:
            for version in self.numbers()[:-keep] if keep else ():
                for suffix in (POINTER, *DESCRIPTIONS, RECORD):
                    remote_files.remove(self._entry(version, suffix))
                remote_files.remove(self.path(version))
            entries = self._entries()
            for version in {number for number, _ in entries} - {number for number, kind in entries if kind == POINTER}:
                if self._is_abandoned(version):
                    for place in (self.destination, canary_folder(self.destination)):
                        remote_files.remove(remote_files.join(place, str(version)))
        except ComponentError as error:  # the new version can be served already
            log.warning("%s: old versions are not removed: %s", self.destination, error.received)

    def _is_abandoned(self, version: int) -> bool:
        """Return True if the push of a version ended before its pointer; a withdrawal may have moved the pointer."""
        claim = self._read(version, CLAIM)
        is_old = False
        with contextlib.suppress(LookupError, ValueError, TypeError):  # no claim, or a damaged one
            is_old = _now() - datetime.datetime.fromisoformat(claim["time"]) > ABANDONED_AFTER
        if not is_old and not staging.has_ended(str(claim.get("owner"))):
            return False
        # In this order, and after the claim: the pointer is written before the push ends, the change before it moves.
        return not self._read(version, POINTER) and version not in read_changes(self.destination)

    def _entries(self) -> list[tuple[int, str]]:
        """List number and suffix of claims and pointers."""
        names = map(Path, remote_files.list_names(remote_files.join(self.destination, FOLDER)))
        return [(int(name.stem), name.suffix) for name in names if name.stem.isdecimal()]

    def _read(self, version: int, suffix: str) -> Mapping[str, Any]:
        entry = self._entry(version, suffix)
        return report_schema.decode(remote_files.read_file(entry) or b"{}", entry)

    def _entry(self, version: int, suffix: str) -> str:
        return remote_files.join(self.destination, f"{FOLDER}/{version}{suffix}")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def open_versions(
    destination: str, layout: str = "plain", signing_key: str | None = None, predicate: JsonObject | None = None
) -> Versions | StoreVersions:
    """Return the versions of a destination. A withdrawal needs no layout: it changes what the last push wrote."""
    versions = StoreVersions if remote_files.is_remote(destination) else Versions
    return versions(destination, layout, signing_key, predicate)
