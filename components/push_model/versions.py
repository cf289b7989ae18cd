"""Numbered versions in a folder, each added by one rename."""

import contextlib
import errno
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tfopt.components.push_model.push_plan import PushResult, plan_push, record_canary
from tfopt.components.push_model.version_record import RECORD, VersionRecord, read_record, write_record
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import (
    POINTER,
    WITHDRAWN,
    Changes,
    canary_folder,
    is_canary,
    is_withdrawn,
    new_change,
    read_changes,
    served_versions,
    write_change,
)
from tfopt.serving.layouts import Version
from tfopt.serving.triton_config import FILE as CONFIG
from tfopt.serving.triton_config import HEADER
from tfopt.serving.version_manifest import DESCRIPTIONS, FOLDER, MANIFEST, write_description
from tfopt.storage import remote_files, staging
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.owned_files import check_links
from tfopt.storage.publication import NAME_IN_USE
from tfopt.value_types import JsonObject

LATEST = "latest"
MakeConfig = Callable[[str, str | None], str]  # from the model's name in Triton and the configuration before

log = logging.getLogger(__name__)


class Versions:
    """The versions in a destination; their names are numbers."""

    def __init__(
        self, destination: str, layout: str, signing_key: str | None = None, predicate: JsonObject | None = None
    ) -> None:
        """Refer to a folder, which need not exist yet."""
        self.folder, self.layout = remote_files.local_path(destination).absolute(), layout
        self._signing_key, self._predicate = signing_key, predicate
        self.destination = str(self.folder)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield an empty folder for the files of a version, and remove what is left of it at the end.

        Raises:
            ComponentError: If the destination cannot be written. It then contains nothing of this version.
        """
        if self.layout == "plain":
            check_name(self.folder / LATEST, link=True)
        # In the destination, because a rename cannot cross file systems.
        with translate_errors(self.folder), staging.staged_folder(self.folder) as stage:
            yield stage

    def add(
        self,
        stage: Path,
        record: VersionRecord,
        keep: int | None = None,
        make_config: MakeConfig | None = None,
        share: int | None = None,
    ) -> PushResult:
        """Add a version, in a folder of `staged`, as the newest one, unless it is that already, or was withdrawn.

        ``make_config`` returns Triton's configuration, which is written before that, and restored if adding the version
        fails. The record is completed and written. After it, ``keep`` versions remain; all with None or 0. With
        ``share``, percent of the requests, it becomes a canary if another version is served.
        """
        staging.sync_tree(stage)
        with self.locked():  # otherwise the configuration could be that of another concurrent push
            self.complete_changes()
            plan = plan_push(self, Version(stage).digest, share)
            if plan.refusal:
                return plan.result(None)
            home = self._canaries() if plan.share else self
            with home._written_config(make_config, self.folder / CONFIG) as config:
                # If it is there, what a killed push did not do after the rename is done below.
                version = plan.version or self._rename(stage, home)
            staging.sync(home.folder)
            pushed = stage if plan.version else None
            write_description(home.path(version), home.destination, self._signing_key, self._predicate, pushed)
            write_record(self.destination, record.of_version(version, home.path(version), plan.digest, config))
            if plan.share:
                record_canary(self.destination, plan, version)
                return plan.result(version)
            if self.layout == "plain":
                self._link_latest(version)
            self.show_newest()
            for old in self.numbers()[: -keep or None] if keep else ():
                self._remove(old)
        return plan.result(version)

    def _canaries(self) -> "Versions":
        """Return the versions in the folder of canaries, without those of killed pushes."""
        canaries = Versions(canary_folder(self.destination), self.layout)
        canaries.folder.mkdir(parents=True, exist_ok=True)
        changes = read_changes(self.destination)
        for number in canaries.numbers():
            if not is_canary(changes.get(number, ())):
                canaries._remove(number)
        return canaries

    @contextlib.contextmanager
    def _written_config(self, make_config: MakeConfig | None, served: Path) -> Iterator[str | None]:
        """Write Triton's configuration and yield it; if the body of the ``with`` statement fails, restore it.

        ``served`` is that of the served version, which stays if a user wrote it.
        """
        address = str(self.folder / CONFIG)
        before, config = read_config(address), read_config(str(served))
        config = make_config(self.folder.name, config) if make_config else config
        if config and config != before:
            remote_files.write_file(address, config.encode())
        try:
            yield config
        except BaseException:
            if config != before:
                remote_files.write_file(address, before.encode()) if before else remote_files.remove(address)
            raise

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of the destination against other processes of this machine."""
        return lock_folder(self.folder)

    def complete_changes(self) -> None:
        """Move the files of withdrawn and restored versions that are not moved yet; record folders moved by hand.

        A newest version whose folder was moved away while older ones remain was taken back as well.
        """
        self.show_newest()  # before the folder that an existing link points to is moved
        complete_changes(self.destination)
        numbers, changes = self.numbers(), read_changes(self.destination)
        for number in numbers:
            if changes.get(number) and changes[number][-1].action == "removed":
                write_change(self.destination, new_change(number, "restored", "", "its folder is there again"), changes)
        names = [name for name in remote_files.list_names(str(self.folder / FOLDER)) if name.endswith(MANIFEST)]
        described = {int(name) for name in map(_version_name, names) if name}
        for number in sorted(described) if numbers else ():
            if number > numbers[-1] and not is_withdrawn(changes.get(number, ())):
                record = read_record(self.destination, number)
                digest = record.digest if record else ""
                change = new_change(number, "removed", digest, "its folder is not there any more")
                write_change(self.destination, change, changes)
                log.warning("%s: %s", self.folder, change)
        complete_changes(self.destination)

    def show_newest(self) -> None:
        """Let an existing link ``latest`` point to the newest version, and write Triton's configuration of it."""
        newest, latest = self.newest(), self.folder / LATEST
        if latest.is_symlink() and newest is None:
            latest.unlink()
        elif latest.is_symlink() and newest is not None:
            self._link_latest(newest)
        if config := recorded_config(self.destination, newest):
            replace_config(str(self.folder / CONFIG), config)

    def digest(self, version: int) -> str:
        """Return the digest of a version's files."""
        return Version(self.path(version)).digest

    def numbers(self) -> list[int]:
        """List the numbers of the versions, oldest first, without those that are withdrawn but not moved yet."""
        return list(served_versions(self.destination))

    def newest(self) -> int | None:
        """Return the largest number; None if there is no version."""
        return max(self.numbers(), default=None)

    def path(self, version: int) -> Path:
        """Return the folder of a version, whose name may have leading zeros."""
        paths = (path for path in self._numbered() if path.is_dir() and int(path.name) == version)
        return next(paths, self.folder / str(version))

    def _numbered(self) -> list[Path]:
        """List everything named with a number: versions, and files of users."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return [path for path in paths if path.name.isascii() and path.name.isdecimal()]

    def _rename(self, stage: Path, home: "Versions") -> int:
        """Rename to the next free number; a number that another machine uses meanwhile is skipped."""
        while True:
            names = [path.name for path in (*self._numbered(), *home._numbered())] + [
                _version_name(name) for name in remote_files.list_names(str(self.folder / FOLDER))
            ]
            version = 1 + max((int(name) for name in names if name), default=0)
            try:
                stage.rename(home.folder / str(version))
            except OSError as error:
                if error.errno not in NAME_IN_USE:
                    raise
            else:
                return version

    def _link_latest(self, version: int) -> None:
        """Point ``latest`` to the newest version, which another machine may have added meanwhile."""
        latest = self.folder / LATEST
        linked = int(name) if latest.is_symlink() and (name := str(latest.readlink())).isdecimal() else None
        while linked != (newest := self.newest() or version):
            if not staging.replace_link(latest, str(newest)):
                return
            linked = newest

    def _remove(self, version: int) -> None:
        """Rename a version to a hidden name, then delete it; a push on another machine may remove it first."""
        hidden, path = staging.new_folder_path(self.folder), self.path(version)
        try:
            for suffix in (*DESCRIPTIONS, RECORD):
                (self.folder / FOLDER / f"{path.name}{suffix}").unlink(missing_ok=True)
            hidden.parent.mkdir()
            path.rename(hidden)
            shutil.rmtree(hidden)
        except FileNotFoundError:
            pass
        except OSError as error:  # the new version is served already
            log.warning("%s: version %s is not removed: %s", self.folder, version, error)
        staging.remove_folder(hidden)


def complete_changes(destination: str) -> None:
    """Move the files of versions to where their last change says they are; what is there already stays.

    Readers of a folder see a version whole or not at all. In a store, `tfopt` sees it so, by its pointer; what another
    command records there meanwhile is carried out, too.
    """
    withdrawn, canaries = remote_files.join(destination, WITHDRAWN), canary_folder(destination)
    done: Changes = {}
    recorded = read_changes(destination)
    while done != recorded:
        for number, changes in recorded.items():
            if changes[-1].complete and changes[-1].action in ("pushed", "promoted"):
                continue  # there may be many of them
            also = [canaries] if any(is_canary([change]) for change in changes) else []
            if is_withdrawn(changes):
                folder = [POINTER, ""] if changes[-1].action == "withdrawn" else []  # else one may have moved it back
                for source in [destination, *also]:
                    _move(number, source, withdrawn, [*folder, *DESCRIPTIONS])
            else:
                target = canaries if is_canary(changes) else destination
                for source in [place for place in (withdrawn, *also) if place != target]:
                    _move(number, source, target, [*DESCRIPTIONS, "", POINTER])
        done, recorded = recorded, read_changes(destination)


def _move(number: int, source: str, target: str, parts: Sequence[str]) -> None:
    """Move the folder of a version (""), and the files with these suffixes next to it, from one destination."""
    name = folder_name(source, number) or str(number)
    for part in parts:
        path = f"{FOLDER}/{name}{part}" if part else name
        remote_files.move(remote_files.join(source, path), remote_files.join(target, path))


def folder_name(destination: str, number: int) -> str | None:
    """Return the name of a version's folder, which may have leading zeros; None if there is no such folder."""
    numbered = (name for name in remote_files.list_names(destination) if name.isascii() and name.isdecimal())
    return next((name for name in numbered if int(name) == number), None)


def read_config(address: str) -> str | None:
    """Read Triton's configuration, which the record of each version contains; None if there is none.

    Raises:
        ComponentError: If it, or a folder on the way, is a link of another user, for example to a private file.
    """
    if not remote_files.is_remote(address):
        check_links(Path(address))
    content = remote_files.read_file(address)
    return None if content is None else content.decode(errors="replace")


def recorded_config(destination: str, version: int | None) -> str | None:
    """Return Triton's configuration of a version; None if there is none, or an earlier release pushed the version."""
    record = read_record(destination, version) if version is not None else None
    return record.config if record else None


def replace_config(address: str, config: str) -> bool:
    """Write Triton's configuration, unless it is there, or the file is the user's; return True if it was written."""
    before = read_config(address)
    is_other = before is not None and before.startswith(HEADER) and before != config
    if is_other:
        remote_files.write_file(address, config.encode())
    return is_other


def _version_name(name: str) -> str:
    """Return the number in the name of a file next to the versions; empty if there is none."""
    number = re.split(r"[.-]", name)[0]
    return number if number.isascii() and number.isdecimal() else ""


def check_name(path: Path, *, link: bool = False) -> None:
    """Raise ComponentError if a path exists and is no folder, or with ``link`` no link: a push would replace it."""
    if path.exists() and not (path.is_symlink() if link else path.is_dir()):
        kind = "link" if link else "folder"
        expected = f"the {kind} that push_model writes there, or nothing"
        raise ComponentError(f"push_model: {path} is no {kind}", expected, "rename it, or push elsewhere")


@contextlib.contextmanager
def translate_errors(folder: str | Path, *, is_push: bool = True) -> Iterator[None]:
    """Raise ComponentError for an OSError of the body of the ``with`` statement, which pushes or changes a version."""
    try:
        yield
    except OSError as error:
        expected, fix = "a folder that can be written", "change its permissions" + ", or push elsewhere" * is_push
        if error.errno in NAME_IN_USE and error.filename2:  # of a rename
            expected, fix = "one file or folder of this name", "rename or remove one of them, then repeat the command"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            expected = "room for one more version" if is_push else "room for a record"
            fix = "free some space there, as by removing old versions; with keep=N later pushes remove them"
        names = " and ".join(str(name) for name in (error.filename, error.filename2) if name)
        what = "push_model: destination=" * is_push
        received = f"{what}{folder}: {error.strerror or error}{names and f': {names}'}"
        raise ComponentError(received, expected, fix) from error
