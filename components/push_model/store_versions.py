"""Numbered versions in an object store, which has no renames: a version exists once its pointer does.

``DEST/8/…`` holds the files of version 8. ``DEST/versions/8.claim`` reserves the number, by a conditional write, before
the files are copied. ``DEST/versions/8.json``, the pointer, is written last: number, digest and files.
"""

import contextlib
import datetime
import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.components.push_model.versions import PushResult
from tfopt.errors import ComponentError
from tfopt.serving.layouts import Version, VersionFacts, copy_model, version_files
from tfopt.serving.triton_config import FILE as CONFIG
from tfopt.serving.version_manifest import FOLDER, MANIFEST, SIGNATURE, describe_version, renewed_signature
from tfopt.storage import remote_files, staging

POINTER, CLAIM = ".json", ".claim"
# From then on the files of a version without a pointer are removed; at once if its process was here and has ended.
ABANDONED_AFTER = datetime.timedelta(days=1)

log = logging.getLogger(__name__)


class StoreVersions:
    """The versions below an address; their names are numbers."""

    def __init__(self, destination: str, layout: str, signing_key: str | None = None) -> None:
        """Refer to an address, below which there may be nothing yet."""
        self.destination, self.layout = destination.rstrip("/"), layout
        self._signing_key = signing_key

    def push(
        self,
        model: Model,
        keep: int | None = None,
        write_files: Callable[[Path], VersionFacts] | None = None,
        write_config: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> PushResult:
        """Add a model as the newest version, unless it is that already; see `Versions.push`.

        Raises:
            ComponentError: If the store cannot be written, or has no conditional writes.
        """
        version_files(model, self.layout)
        remote_files.check_conditional_writes(self.destination)
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            stage, config_folder = Path(folder, "version"), Path(folder, self.destination.rpartition("/")[2])
            stage.mkdir()
            config_folder.mkdir()
            facts = write_files(stage) if write_files else copy_model(model, self.layout, stage)
            digest, previous = Version(stage).digest, self.newest()
            before = remote_files.read_file(remote_files.join(self.destination, CONFIG))
            if before is not None:
                (config_folder / CONFIG).write_bytes(before)
            with write_config(config_folder):
                config = (config_folder / CONFIG).read_bytes() if (config_folder / CONFIG).exists() else None
                if previous is not None and self._read(previous, POINTER).get("digest") == digest:
                    self._write_config(before, config)
                    version, reason = previous, "the newest version is this very model already"
                    self._renew_signature(version)
                else:
                    version = self._add(stage, digest, lambda: self._write_config(before, config))
                    reason = "blessed"
        self._remove_old(keep)
        return PushResult(version, previous, reason, facts)

    def numbers(self) -> list[int]:
        """List the numbers of the versions, oldest first."""
        return sorted(number for number, kind in self._entries() if kind == POINTER)

    def newest(self) -> int | None:
        """Return the largest number; None if there is no version."""
        return max(self.numbers(), default=None)

    def path(self, version: int) -> str:
        """Return the address of a version."""
        return remote_files.join(self.destination, str(version))

    def _add(self, stage: Path, digest: str, write_config: Callable[[], None]) -> int:
        version = self._claim_number()
        stage = stage.rename(stage.with_name(str(version)))
        files = {path.relative_to(stage).as_posix(): path.stat().st_size for path in stage.rglob("*") if path.is_file()}
        pointer = {"version": version, "digest": digest, "time": _now().isoformat(), "files": files}
        try:
            remote_files.upload(stage, self.path(version))
            for name, content in describe_version(stage, self._signing_key).items():
                remote_files.write_file(remote_files.join(self.destination, name), content)
            write_config()
            remote_files.write_file(self._entry(version, POINTER), (json.dumps(pointer, indent=1) + "\n").encode())
        except BaseException:
            with contextlib.suppress(ComponentError):  # the first error is the one to report
                remote_files.remove(self.path(version))
            raise
        return version

    def _renew_signature(self, version: int) -> None:
        """Sign an existing version if it is not signed with this key."""
        if self._signing_key:
            signature = renewed_signature(Path(remote_files.local_copy(self.path(version))), self._signing_key)
            if signature:
                remote_files.write_file(self._entry(version, SIGNATURE), signature)

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

    def _write_config(self, before: bytes | None, config: bytes | None) -> None:
        if config is not None and config != before:
            remote_files.write_file(remote_files.join(self.destination, CONFIG), config)

    def _remove_old(self, keep: int | None) -> None:
        """Remove the oldest versions, each pointer first, and the files of pushes that ended without a pointer.

        An error is only logged, because the new version can be served already.
        """
        numbers = self.numbers()
        try:
            for version in numbers[: -keep or None] if keep else ():
                for suffix in (POINTER, MANIFEST, SIGNATURE):
                    remote_files.remove(self._entry(version, suffix))
                remote_files.remove(self.path(version))
            for version in {number for number, _ in self._entries()} - set(numbers):
                if self._is_abandoned(version):
                    remote_files.remove(self.path(version))
        except ComponentError as error:
            log.warning("%s: old versions are not removed: %s", self.destination, error.received)

    def _is_abandoned(self, version: int) -> bool:
        claim = self._read(version, CLAIM)
        if staging.has_ended(claim.get("owner", "")):
            return True
        return bool(claim) and _now() - datetime.datetime.fromisoformat(claim["time"]) > ABANDONED_AFTER

    def _entries(self) -> list[tuple[int, str]]:
        """List number and suffix of claims and pointers."""
        names = map(Path, remote_files.list_names(remote_files.join(self.destination, FOLDER)))
        return [(int(name.stem), name.suffix) for name in names if name.stem.isdecimal()]

    def _read(self, version: int, suffix: str) -> Mapping[str, Any]:
        content: Mapping[str, Any] = json.loads(remote_files.read_file(self._entry(version, suffix)) or b"{}")
        return content

    def _entry(self, version: int, suffix: str) -> str:
        return remote_files.join(self.destination, f"{FOLDER}/{version}{suffix}")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
