"""Hidden names for unfinished files and folders, removal of those of ended processes, and copies by hard links."""

import contextlib
import errno
import glob
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tfopt.storage.folder_lock import try_lock
from tfopt.storage.owned_files import opened_own

NO_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
STALE_S = 86_400.0  # age from which a staging path of another machine is abandoned: its processes cannot be checked
BOOT = Path("/proc/sys/kernel/random/boot_id")  # the same in all containers of a machine


def new_path(folder: Path, target: str = "") -> Path:
    """Return a unique path in a folder that servers and readers ignore.

    If a folder ``target`` will be made there, the staging folder must be held by `lock_folder` while it is in use, so
    that it is also recognized as abandoned if its process was in another container.
    """
    return folder / f"{_prefix(target)}{socket.gethostname()}-{os.getpid()}-{_boot()}{uuid.uuid4().hex}"


def remove_abandoned(folder: Path, target: str = "") -> None:
    """Remove staging paths of ended processes from a folder; those of other machines after `STALE_S`.

    They were made for a folder with the name ``target``; ``*`` for all, otherwise taken literally. Those of other users
    stay.
    """
    pattern = _prefix(target) if target == "*" else glob.escape(_prefix(target))
    for path in filter(_is_abandoned, folder.glob(f"{pattern}*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def has_ended(name: str) -> bool:
    """Return True if a name from `new_path` is of a process of this host that has ended."""
    match = re.search(rf"\.partial-{re.escape(socket.gethostname())}-(\d+)-\w+$", name)
    return match is not None and not Path("/proc", match[1]).exists()


def _is_abandoned(path: Path) -> bool:
    try:
        if path.lstat().st_uid != os.geteuid():
            return False
    except FileNotFoundError:  # another process has removed it
        return False
    if has_ended(path.name):
        return True
    owner, token = path.name.split("-")[-2:]
    same_host = f".partial-{socket.gethostname()}-{owner}-" in path.name
    has_target = not path.name.startswith(_prefix())
    is_free = _is_unlocked(path) if has_target and token.startswith(_boot()) else None
    if is_free and (not same_host or owner == str(os.getpid())):
        return True  # process IDs of other containers say nothing, and in each container the first process has ID 1
    if is_free is False:
        return False
    try:
        files: list[Path] = [path, *(() if path.is_symlink() else path.rglob("*"))]
        return time.time() - max(file.lstat().st_mtime for file in files) > STALE_S
    except FileNotFoundError:  # another process is removing it
        return False


def _is_unlocked(folder: Path) -> bool | None:
    """Return True if a folder is not locked; None if it was removed, or the file system has no locks on folders."""
    with contextlib.suppress(OSError), opened_own(folder) as descriptor:
        return try_lock(descriptor)
    return None


def _prefix(target: str = "") -> str:
    return f".{target}.partial-" if target else ".partial-"


def _boot() -> str:
    return BOOT.read_text()[:8] if BOOT.is_file() else "unknown"


@contextlib.contextmanager
def staged_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty hidden folder in a folder, which is created, and remove what is left of it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    stage = new_path(folder)
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def replace_file(file: Path, content: bytes) -> None:
    """Write a file to the disk, which appears complete, and replaces an existing one."""
    with _complete_file(file, content) as stage:
        stage.replace(file)


def create_file(file: Path, content: bytes) -> bool:
    """Write a new file to the disk, which appears complete; return False if there is a file already."""
    with _complete_file(file, content) as stage:
        try:
            os.link(stage, file)  # atomic, and never replaces an existing file
        except OSError:
            if os.path.lexists(file):
                return False
            stage.rename(file)  # a file system without hard links
    return True


@contextlib.contextmanager
def _complete_file(file: Path, content: bytes) -> Iterator[Path]:
    """Yield a hidden file next to the given one, with the content and on the disk; it is removed at the end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(file.parent)
    stage = new_path(file.parent)
    try:
        stage.write_bytes(content)
        sync(stage)
        yield stage
    finally:
        stage.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """Write all files and folders below a folder to the disk."""
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            sync(path)


def sync(path: Path) -> None:
    """Write a file or folder to the disk, so that a power failure after a rename loses nothing.

    Some file systems, such as those of object stores, cannot do that with folders.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC or not path.is_dir():
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def link_tree(source: Path, target: Path) -> None:
    """Copy a file or folder with hard links if the file system allows it; complete artifacts never change."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(source, target)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
