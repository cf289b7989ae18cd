"""A folder of numbered versions, each of which appears by one rename."""

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts import staging as partial
from tfopt.artifacts.folder_lock import lock_folder
from tfopt.errors import ComponentError
from tfopt.serving.layouts import Version, copy_model, version_files

LATEST = "latest"
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # what renaming to an existing name says


class Versions:
    """The versions in a destination, under names that are numbers."""

    def __init__(self, destination: str, layout: str) -> None:
        """Point at a folder, which need not exist yet."""
        self.folder, self.layout = Path(destination).expanduser().absolute(), layout

    def push(
        self,
        model: Model,
        keep: int | None = None,
        fill: Callable[[Path], None] | None = None,
        beside: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> dict[str, Any]:
        """Add a model as the newest version, unless it is that already.

        Args:
            model: What is pushed.
            keep: How many versions stay; None for all.
            fill: Writes the version into a folder; the model by itself when not given.
            beside: Writes what lies beside the versions, when the version is whole, before it is shown or found to be
                there already; takes it back where the version then cannot be shown.

        Raises:
            ComponentError: When the folder cannot be written; nothing of this version is then in it.
        """
        version_files(model, self.layout)
        if self.layout == "plain":
            check_link(self.folder / LATEST)
        with understood(self.folder), self._staging() as stage:
            fill(stage) if fill else copy_model(model, self.layout, stage)
            _sync_all(stage)
            with lock_folder(self.folder):  # else what is beside the versions could be of another push than the newest
                return self._show(stage, keep, beside)

    def unpushed(self, reason: str) -> dict[str, Any]:
        """The facts of a model that is not pushed, for a reason."""
        facts = self._facts(None, self.newest(), reason)
        return facts | {"pushed": False}

    def all(self) -> list[int]:
        """The numbers there are, oldest first."""
        return sorted(int(path.name) for path in self._numbered() if path.is_dir())

    def newest(self) -> int | None:
        """The largest number; None when there is none."""
        return max(self.all(), default=None)

    def path(self, version: int) -> Path:
        """The folder of a version, whatever zeros someone wrote before its number."""
        found = (path for path in self._numbered() if path.is_dir() and int(path.name) == version)
        return next(found, self.folder / str(version))

    def _numbered(self) -> list[Path]:
        """The versions, and files of somebody's own that are called as one."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return [path for path in paths if path.name.isascii() and path.name.isdecimal()]

    def _show(
        self, stage: Path, keep: int | None, beside: Callable[[], AbstractContextManager[None]]
    ) -> dict[str, Any]:
        previous = self.newest()
        with beside():
            if previous is not None and Version(self.path(previous)).digest == Version(stage).digest:
                return self._facts(previous, previous, "the newest version is this very model already")
            version = self._publish(stage)
        _sync(self.folder)
        if self.layout == "plain" or (self.folder / LATEST).is_symlink():  # which may not lead to an old format
            self._point(version)
        for old in self.all()[: -keep or None] if keep else ():
            self._remove(old)
        return self._facts(version, previous, "blessed")

    def _publish(self, stage: Path) -> int:
        """Rename under the next free number. One that another machine has just taken cannot be renamed over."""
        while True:
            version = 1 + max((int(path.name) for path in self._numbered()), default=0)
            try:
                stage.rename(self.folder / str(version))
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
            else:
                return version

    def _point(self, version: int) -> None:
        """Let ``latest`` lead to the newest version, which by now may be another push's."""
        pointed: int | None = None
        while pointed != (newest := self.newest() or version):
            link = partial.new_path(self.folder)
            link.symlink_to(str(newest))
            link.replace(self.folder / LATEST)
            pointed = newest

    def _remove(self, version: int) -> None:
        """Take a version out of sight at once, then delete it; a push on another machine may be doing the same.

        What cannot be deleted is only warned of: by now the new version is served.
        """
        grave = partial.new_path(self.folder)
        try:
            self.path(version).rename(grave)
            shutil.rmtree(grave)
        except FileNotFoundError:
            pass
        except OSError as error:
            logging.getLogger("tfopt").warning("%s: version %s is not removed: %s", self.folder, version, error)

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial.remove_abandoned(self.folder)
        stage = partial.new_path(self.folder)  # beside the versions, since a rename cannot cross disks
        stage.mkdir()
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def _facts(self, version: int | None, previous: int | None, reason: str) -> dict[str, Any]:
        return {
            "pushed": True,
            "destination": str(self.folder),
            "version": version,
            "path": None if version is None else str(self.path(version)),
            "layout": self.layout,
            "reason": reason,
            "previous": previous,
        }


def _sync_all(stage: Path) -> None:
    """Have all of a version on the disk, folders too."""
    for path in [*stage.rglob("*"), stage]:
        _sync(path)


def _sync(path: Path) -> None:
    """Have it on the disk before the rename that makes it visible, should the power fail."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_link(link: Path) -> None:
    """Refuse a folder in which somebody keeps something where a link is about to be: it would take its place.

    Raises:
        ComponentError: When there is something that is no link.
    """
    if link.exists() and not link.is_symlink():
        raise ComponentError(
            f"push_model: {link} is no link",
            "the link that push_model writes there, or nothing",
            "rename it, or push elsewhere",
        )


def check_folder(folder: Path) -> None:
    """Refuse a place in which somebody keeps something that is no folder, where one is about to be written into.

    Raises:
        ComponentError: When there is such a thing.
    """
    if folder.exists() and not folder.is_dir():
        raise ComponentError(
            f"push_model: {folder} is no folder",
            "the folder that push_model writes there, or nothing",
            "rename it, or push elsewhere",
        )


@contextlib.contextmanager
def understood(folder: Path) -> Iterator[None]:
    """What the operating system refuses, in three parts."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ComponentError(
            f"push_model: destination={folder}: {error.strerror or error}",
            "room for one more version" if full else "a folder that can be written",
            "free some space there, as by removing old versions; with keep=N later pushes remove them"
            if full
            else "mend its permissions, or push elsewhere",
        ) from error
