"""Open and remove only what this user wrote: other users may put files and links into a shared folder."""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tfopt.errors import ComponentError


@contextlib.contextmanager
def opened_own(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a regular file or a folder of this user, not through a link, and yield its descriptor.

    Every file that decides what is removed, renamed or reused is opened here. A pipe does not block.

    Raises:
        OSError: If there is none, or it is a link, something else, or another user's.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise PermissionError(errno.EPERM, "neither a file nor a folder of this user", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def is_own(path: Path) -> bool:
    """Return True if a path is a regular file or a folder of this user, and no link."""
    with contextlib.suppress(OSError), opened_own(path):
        return True
    return False


def check_links(path: Path) -> None:
    """Raise ComponentError for a link on the way to an absolute path, unless this user or root made it."""
    for place in (path, *path.parents):
        if place.is_symlink() and (owner := place.lstat().st_uid) not in (os.geteuid(), 0):
            received = f"{place}, a link of another user (ID {owner}) to {place.readlink()}"
            fix = "if it leads where you mean, name that path instead of it"
            raise ComponentError(received, "a path that only you or root lead elsewhere", fix)


def is_below(root: Path, path: Path) -> bool:
    """Return True if a path leads to something below a folder without a link on the way; its last name may be one."""
    return os.path.lexists(path) and path.parent.resolve() == root.resolve() / path.relative_to(root).parent


def remove_below(root: Path, path: Path) -> None:
    """Remove a file or folder below a folder; it is no error if it does not exist.

    Each name on the way is opened without following links, so that no other user can replace one of them meanwhile.

    Raises:
        OSError: If a name on the way is a link, or something cannot be removed.
    """
    *parents, name = path.relative_to(root).parts
    with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, folder)
        for parent in parents:
            folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
