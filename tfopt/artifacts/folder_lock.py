"""One at a time in a folder, where what several steps of one process do there must not mix with another's."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process or thread of this machine is in here with that folder.

    A store that knows no locks on folders, as NFS, is gone on with all the same.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
