"""Hidden names for unfinished files and folders, removal of those of ended processes, and copies by hard links."""

import contextlib
import errno
import glob
import logging
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tfopt.storage.folder_lock import try_lock
from tfopt.storage.owned_files import opened_own

log = logging.getLogger(__name__)

INNER = "~tfopt"  # the name of an unfinished folder
NO_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
STALE_S = 86_400.0  # age from which a staging path of another machine is abandoned: its processes cannot be checked
BOOT = Path("/proc/sys/kernel/random/boot_id")  # the same in all containers of a machine


def new_path(folder: Path, target: str = "") -> Path:
    """Return a unique path in a folder that servers and readers ignore.

    If it is for a folder ``target``, what is made there must be held by `lock_folder` while it is in use, so that it is
    also recognized as abandoned if its process was in another container.
    """
    return folder / f"{_prefix(target)}{socket.gethostname()}-{os.getpid()}-{_boot()}{uuid.uuid4().hex}"


def new_folder_path(folder: Path, target: str = "") -> Path:
    """Return the path of an unfinished folder, inside of a folder at a `new_path`.

    Users who may write into a shared folder may give any folder there such a name, also one of this user. But only this
    user can put `INNER` into it, so `remove_abandoned` removes nothing else.
    """
    return new_path(folder, target) / INNER


def remove_folder(path: Path) -> None:
    """Remove what is at a `new_folder_path`, or was renamed from there, as far as possible."""
    with contextlib.suppress(OSError):
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path, ignore_errors=True)
        path.parent.rmdir()


def remove_abandoned(folder: Path, target: str = "") -> None:
    """Remove staging paths of ended processes from a folder; those of other machines after `STALE_S`.

    They were made for a folder with the name ``target``; ``*`` for all, otherwise taken literally. Those of other users
    stay, and so does a folder that was renamed so.
    """
    pattern = _prefix(target) if target == "*" else glob.escape(_prefix(target))
    for path in filter(_is_abandoned, folder.glob(f"{pattern}*")):
        if path.is_dir() and not path.is_symlink():
            remove_folder(path / INNER)
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
    inner = path / INNER
    is_free = _is_unlocked(inner if inner.is_dir() else path) if has_target and token.startswith(_boot()) else None
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
    stage = new_folder_path(folder)
    stage.mkdir(parents=True)
    try:
        yield stage
    finally:
        remove_folder(stage)


def replace_file(file: Path, content: bytes) -> None:
    """Write a file to the disk, which appears complete, and replaces an existing one."""
    with _complete_file(file, content) as stage:
        stage.replace(file)


def replace_link(link: Path, target: str) -> bool:
    """Let a symbolic link lead elsewhere, by one rename; on a file system without links log it, and return False."""
    new = new_path(link.parent)
    try:
        new.symlink_to(target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        log.warning("%s -> %s is not written: this file system has no links", link, target)
        return False
    new.replace(link)
    return True


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
    copy_tree(source, target, _link)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, with mode and times if the file system has its own for neither."""
    shutil.copyfile(source, target)
    with contextlib.suppress(OSError):
        shutil.copystat(source, target)


def copy_tree(source: Path, target: Path, copy: Callable[[Path, Path], None] = copy_file) -> None:
    """Copy a file or folder into a folder that may exist; links are followed."""
    if not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(source, target)
        return
    for folder, _, names in os.walk(source, onerror=_raise, followlinks=True):
        below = target / Path(folder).relative_to(source)
        below.mkdir(parents=True, exist_ok=True)
        for name in names:
            copy(Path(folder, name), below / name)


def _raise(error: OSError) -> None:
    raise error


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)
