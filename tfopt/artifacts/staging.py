"""Hidden names for unfinished files and folders, removal of those of ended processes, and copies by hard links."""

import contextlib
import fcntl
import glob
import os
import shutil
import socket
import time
import uuid
from pathlib import Path

STALE_S = 86_400.0  # age from which a staging path of another machine is abandoned: its processes cannot be checked
BOOT = Path("/proc/sys/kernel/random/boot_id")  # the same in all containers of a machine


def new_path(folder: Path, target: str = "") -> Path:
    """Return a unique path in a folder that servers and readers ignore.

    Args:
        folder: Where to stage.
        target: Name of the folder that will be made there. Its staging folder must be held by `lock_folder` while it
            is in use, so that it is also recognized as abandoned if its process was in another container.
    """
    return folder / f"{_prefix(target)}{socket.gethostname()}-{os.getpid()}-{_boot()}{uuid.uuid4().hex}"


def remove_abandoned(folder: Path, target: str = "") -> None:
    """Remove staging paths of ended processes from a folder; those of other machines after `STALE_S`."""
    for path in filter(_is_abandoned, folder.glob(f"{glob.escape(_prefix(target))}*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    owner, token = path.name.split("-")[-2:]
    same_host = f".partial-{socket.gethostname()}-{owner}-" in path.name
    if same_host and not Path("/proc", owner).exists():
        return True
    has_target = not path.name.startswith(_prefix())
    if has_target and token.startswith(_boot()) and (not same_host or owner == str(os.getpid())) and _is_unlocked(path):
        return True  # process IDs of other containers say nothing, and in each container the first process has ID 1
    try:
        return time.time() - max(file.lstat().st_mtime for file in (path, *path.rglob("*"))) > STALE_S
    except FileNotFoundError:  # another process is removing it
        return False


def _is_unlocked(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it is locked, or the file system has no locks on folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(descriptor)
    return False


def _prefix(target: str = "") -> str:
    return f".{target}.partial-" if target else ".partial-"


def _boot() -> str:
    return BOOT.read_text()[:8] if BOOT.is_file() else "unknown"


def sync_tree(folder: Path) -> None:
    """Write all files and folders below a folder to the disk."""
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            sync(path)


def sync(path: Path) -> None:
    """Write a file or folder to the disk, so that a power failure after a rename loses nothing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
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
