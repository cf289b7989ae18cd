"""One folder for all temporary files of a process, of libraries in it, and of its children."""

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from tfopt.errors import ComponentError
from tfopt.storage.folder_lock import try_lock
from tfopt.storage.owned_files import opened_own
from tfopt.storage.staging import INNER, remove_folder

NAME = re.compile(r"tfopt-\d+-[0-9a-f]{8}")  # short: the path of a socket has 107 bytes at most

_lock = threading.RLock()  # steps may run in threads
_users = 0
_folder: Path | None = None
_owner = 0
_before: tuple[str | None, str | None] = None, None


@contextlib.contextmanager
def scratch_folder() -> Iterator[None]:
    """Let `tempfile` and child processes use one folder of this process while the context is open.

    It is removed when the process ends. Folders of processes that were killed before that are removed first.

    Raises:
        ComponentError: If there is no temporary folder that can be written.
    """
    global _users, _before
    with _lock:
        if not _users:
            folder = _own_folder()
            _before = tempfile.tempdir, os.environ.get("TMPDIR")
            tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                tempfile.tempdir = _before[0]
                os.environ.pop("TMPDIR")
                if _before[1] is not None:
                    os.environ["TMPDIR"] = _before[1]


def remove_abandoned() -> None:
    """Remove the folders of processes that have ended."""
    with contextlib.suppress(OSError):
        _remove_abandoned(Path(_default_folder() or tempfile.gettempdir()))


def keep(file: Path) -> Path | None:
    """Move a file out of the scratch folder, next to it, so that it remains; None if this process may not do that."""
    outer = file.parent.parent
    try:
        return Path(shutil.move(file, outer.parent)) if NAME.fullmatch(outer.name) else file
    except PermissionError:  # of a process that runs a model
        return None


def _own_folder() -> Path:
    """Return the folder of this process, an existing one or a new one."""
    global _folder, _owner
    try:
        parent = Path(tempfile.tempdir or _default_folder() or tempfile.gettempdir())
        if not (_folder and _owner == os.getpid() and _folder.parent.parent == parent and _folder.is_dir()):
            _remove_abandoned(parent)
            _folder, _owner = _new_folder(parent), os.getpid()
            atexit.register(_remove, _folder, _owner)
    except OSError as error:
        received = f"temporary files: {error}"
        expected = "a folder for temporary files with room that can be written"
        raise ComponentError(received, expected, "free some space there, or set TMPDIR to another folder") from error
    return _folder


def _default_folder() -> str | None:
    """Return the folder that `tempfile` will choose, without its test file, which a killed process would leave."""
    folders = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    return next(
        (name for name in (*folders, "/tmp") if name and Path(name).is_dir() and os.access(name, os.W_OK)), None
    )


def _new_folder(parent: Path) -> Path:
    """Create and lock a folder; the lock is released when this process and its forks have ended."""
    while True:
        folder = parent / f"tfopt-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY)  # stays open
        except FileNotFoundError:  # another process removed it before it was locked
            continue
        if try_lock(descriptor) is not False and folder.is_dir():  # otherwise another process removes or removed it
            inner = folder / INNER
            inner.mkdir()
            return inner
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of ended processes: those that are not locked."""
    for folder in parent.iterdir():
        if NAME.fullmatch(folder.name):
            with contextlib.suppress(OSError), opened_own(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                if try_lock(descriptor):  # and not None, where there are no locks
                    remove_folder(folder / INNER)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork
        remove_folder(folder)
