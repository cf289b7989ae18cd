"""A process that ends with the one that started it, however that ends: nothing goes on for nobody."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with(parent: int) -> None:
    """Have this process killed when the thread that started it ends, or end it at once where that has ended already.

    Args:
        parent: The number of the process that started it.
    """
    if sys.platform == "linux":  # no other system offers this
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def bound(*words: str) -> list[str]:
    """The command that becomes another one, which then ends with this process."""
    return [sys.executable, "-m", "tfopt.processes.parent_death", str(os.getpid()), *words]


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
