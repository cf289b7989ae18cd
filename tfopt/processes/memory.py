"""Memory of processes: their peak, and the return of freed memory to the operating system."""

import contextlib
import ctypes
import gc
import re
from pathlib import Path


def peak_memory(process: int | str = "self") -> int:
    """Return the peak resident memory of a process in bytes.

    ``resource.getrusage`` would include the parent's peak, because Linux keeps ``ru_maxrss`` across exec.
    """
    marks = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(marks[1]) * 1024 if marks else 0


def free_graphs() -> None:
    """Free graphs of TensorFlow that are not used any more: they are cycles, each with copies of all weights."""
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Make glibc return freed memory to the operating system (``malloc_trim``).

    glibc retains free pages between blocks in use: after several steps in one process these are gigabytes, which the
    models measured next would lack. Other C libraries do not retain them and do not have this function.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # TypeError: CDLL(None) on Windows
        ctypes.CDLL(None).malloc_trim(0)
