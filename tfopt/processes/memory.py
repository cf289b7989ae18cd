"""Memory and CPU time of this process and its children; the return of freed memory to the operating system."""

import contextlib
import ctypes
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessUsage:
    """What this process and its children have used until now."""

    cpu_seconds: float
    peak_memory: int  # bytes: the largest peak of one of the processes that live now


def measure_usage() -> ProcessUsage:
    """Measure this process, its descendants, and the ended ones that they waited for."""
    import psutil  # not installed with the command alone

    cpu_seconds, peak = 0.0, 0
    current = psutil.Process()
    for process in (current, *current.children(recursive=True)):
        with contextlib.suppress(psutil.Error, OSError):  # it has ended
            times = process.cpu_times()
            cpu_seconds += times.user + times.system + times.children_user + times.children_system
            peak = max(peak, peak_memory(process.pid))
    return ProcessUsage(cpu_seconds, peak)


def peak_memory(process: int | str = "self") -> int:
    """Return the peak resident memory of a process in bytes.

    ``resource.getrusage`` would include the parent's peak, because Linux keeps ``ru_maxrss`` across exec.
    """
    marks = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(marks[1]) * 1024 if marks else 0


def trim_heap() -> None:
    """Make glibc return freed memory to the operating system (``malloc_trim``).

    glibc retains free pages between blocks in use: after several steps in one process these are gigabytes, which the
    models measured next would lack. Other C libraries do not retain them and do not have this function.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # TypeError: CDLL(None) on Windows
        ctypes.CDLL(None).malloc_trim(0)
