"""Numbered versions in a folder, each added by one rename."""

import contextlib
import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tfopt.errors import ComponentError
from tfopt.serving.layouts import Version
from tfopt.serving.version_manifest import FOLDER, MANIFEST, SIGNATURE, write_description
from tfopt.storage import staging
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.publication import NAME_IN_USE

LATEST = "latest"
WriteConfig = Callable[[Path], AbstractContextManager[object]]


@dataclass(frozen=True)
class PushResult:
    """The result of a push.

    Attributes:
        version: Number of the version that contains the model.
        previous: Number of the version that was the newest before; equal to ``version`` if nothing was added.
        reason: ``blessed``, or why nothing was added.
    """

    version: int
    previous: int | None
    reason: str


class Versions:
    """The versions in a destination; their names are numbers."""

    def __init__(self, destination: str, layout: str, signing_key: str | None = None) -> None:
        """Refer to a folder, which need not exist yet."""
        self.folder, self.layout = Path(destination).expanduser().absolute(), layout
        self._signing_key = signing_key
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
        self, stage: Path, keep: int | None = None, write_config: WriteConfig = contextlib.nullcontext
    ) -> PushResult:
        """Add a version, in a folder of `staged`, as the newest one, unless it is that already.

        Before that, ``write_config`` writes the files next to the versions; it restores them if adding the version
        fails. After it, ``keep`` versions remain; all with None or 0.
        """
        staging.sync_tree(stage)
        with lock_folder(self.folder):  # otherwise the configuration could be that of another concurrent push
            previous, reason = self.newest(), "the newest version is this very model already"
            with write_config(self.folder):
                if previous is not None and Version(self.path(previous)).digest == Version(stage).digest:
                    version = previous  # what a killed push did not do after the rename is done below
                else:
                    version, reason = self._rename(stage), "blessed"
            staging.sync(self.folder)
            write_description(self.path(version), self.destination, self._signing_key)
            if self.layout == "plain" or (self.folder / LATEST).is_symlink():  # an existing link must not lag behind
                self._link_latest(version)
            for old in self.numbers()[: -keep or None] if keep else ():
                self._remove(old)
        return PushResult(version, previous, reason)

    def numbers(self) -> list[int]:
        """List the numbers of the versions, oldest first."""
        return sorted(int(path.name) for path in self._numbered() if path.is_dir())

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

    def _rename(self, stage: Path) -> int:
        """Rename to the next free number; a number that another machine uses meanwhile is skipped."""
        while True:
            version = 1 + max((int(path.name) for path in self._numbered()), default=0)
            try:
                stage.rename(self.folder / str(version))
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
            link = staging.new_path(self.folder)
            link.symlink_to(str(newest))
            link.replace(latest)
            linked = newest

    def _remove(self, version: int) -> None:
        """Rename a version to a hidden name, then delete it; a push on another machine may remove it first.

        An error is only logged, because the new version is served already.
        """
        hidden, path = staging.new_path(self.folder), self.path(version)
        try:
            for suffix in (MANIFEST, SIGNATURE):
                (self.folder / FOLDER / f"{path.name}{suffix}").unlink(missing_ok=True)
            path.rename(hidden)
            shutil.rmtree(hidden)
        except FileNotFoundError:
            pass
        except OSError as error:
            logging.getLogger(__name__).warning("%s: version %s is not removed: %s", self.folder, version, error)


def check_name(path: Path, *, link: bool = False) -> None:
    """Check that a path is free for a folder or link, or is one.

    Raises:
        ComponentError: If there is something else, which a link would replace.
    """
    if path.exists() and not (path.is_symlink() if link else path.is_dir()):
        kind = "link" if link else "folder"
        raise ComponentError(
            f"push_model: {path} is no {kind}",
            f"the {kind} that push_model writes there, or nothing",
            "rename it, or push elsewhere",
        )


@contextlib.contextmanager
def translate_errors(folder: str | Path) -> Iterator[None]:
    """Raise ComponentError for an OSError of the body of the ``with`` statement."""
    try:
        yield
    except OSError as error:
        expected, fix = "a folder that can be written", "change its permissions, or push elsewhere"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            expected = "room for one more version"
            fix = "free some space there, as by removing old versions; with keep=N later pushes remove them"
        raise ComponentError(f"push_model: destination={folder}: {error.strerror or error}", expected, fix) from error
