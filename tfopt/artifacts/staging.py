"""Names for what is not whole yet, in a folder that others read: hidden, and cleared when whoever wrote it is gone."""

import os
import shutil
import socket
import time
import uuid
from pathlib import Path

FORGOTTEN_S = 86_400.0  # nobody writes for so long; only its own machine can tell earlier that a process is gone


def name(folder: Path) -> Path:
    """A name in a folder that servers and readers look past, and that nobody else takes."""
    return folder / f"{_prefix()}{os.getpid()}-{uuid.uuid4().hex}"


def clear(folder: Path) -> None:
    """Remove what was killed processes' in a folder, and what another machine left there a day ago."""
    for path in filter(_abandoned, folder.glob(".partial-*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _abandoned(path: Path) -> bool:
    owner = path.name.split("-")[-2]
    if path.name.startswith(_prefix()) and not Path("/proc", owner).exists():
        return True
    try:
        return time.time() - path.lstat().st_mtime > FORGOTTEN_S
    except FileNotFoundError:  # someone else clears too
        return False


def _prefix() -> str:
    return f".partial-{socket.gethostname()}-"


def link_tree(source: Path, target: Path) -> None:
    """Copy a file or folder by hard links where the disk allows: artifacts never change once they are whole."""
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
