"""CPU time and memory of this process and its descendants."""

import contextlib
from dataclasses import dataclass

from tfopt.processes.memory import peak_memory


@dataclass(frozen=True)
class ProcessUsage:
    """Usage of this process and its children until now."""

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
