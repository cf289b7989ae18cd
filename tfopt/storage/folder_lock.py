"""Hold an exclusive file lock on a folder or a file."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)


@contextlib.contextmanager
def lock_folder(folder: Path, waiting: str = "another process has the lock of %s: waiting for it") -> Iterator[None]:
    """Hold an exclusive lock on a folder against other processes and threads of this machine.

    On file systems without locks on folders, such as NFS, the block runs without a lock. ``waiting`` is logged before
    waiting if the lock is not free: everybody who can read a folder can lock it.
    """
    with _locked(os.open(folder, os.O_RDONLY), lambda: log.info(waiting, folder)):
        yield


@contextlib.contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created, as `lock_folder` does; its content stays.

    Raises:
        OSError: If it cannot be opened, or is a link, which another user could have put there.
    """
    with _locked(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)):
        yield


@contextlib.contextmanager
def lock_if_free(folder: Path) -> Iterator[bool]:
    """Hold the lock of `lock_folder` and yield True; yield False, without it, if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield try_lock(descriptor) is not False
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed by this process and its forks.

    Return False if another process holds the lock, and None on a file system without locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextlib.contextmanager
def _locked(descriptor: int, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    try:
        if try_lock(descriptor) is False:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
