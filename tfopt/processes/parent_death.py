"""Kill a child process when its parent dies."""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
PYTHON = (sys.executable, "-P")  # without the working folder in the search path: random.py there is not the library's


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends; exit at once if it has already ended."""
    if sys.platform == "linux":  # other systems have no equivalent
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def kill_when_closed(child: int, reader: int) -> None:
    """Let the kernel kill a child process, which inherits this end of a pipe, when the other end is closed.

    PR_SET_PDEATHSIG would kill it when the thread that started it ends, which a fork server outlives.
    """
    if sys.platform == "linux":
        fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reader, fcntl.F_SETOWN, child)
        fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)


def bound_command(*words: str) -> list[str]:
    """Return a command that runs another one and is killed when this process ends."""
    return [*PYTHON, "-m", "tfopt.processes.parent_death", str(os.getpid()), *words]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
