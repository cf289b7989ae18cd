"""Conditions of a measurement: pinned cores, TensorFlow's configuration, and the load of the machine."""

import os
import re
from collections.abc import Sequence

from tfopt.components.benchmark.worker import core_times
from tfopt.measurement.machine_fingerprint import CPU, cgroup_limits, read_text
from tfopt.runtimes.environment import ONEDNN
from tfopt.value_types import JsonObject


def describe_tensorflow(facts: JsonObject, log: str) -> JsonObject:
    """Return the configuration of TensorFlow in a model's process from the facts that it reported and its output.

    Only in its output does TensorFlow name the instruction sets that its build leaves unused, and state whether oneDNN,
    which has its own code for them, is on.
    """
    unused = re.search(r"enable the following instructions: ([A-Z0-9_. ]+), in other operations", log)
    return {
        **facts,
        "instruction_sets_not_in_the_build": unused[1].split() if unused else None,
        "onednn": {
            "enabled": "oneDNN custom operations are on" in log,
            ONEDNN: facts.get(ONEDNN),
            "default": "on where an x86 CPU under Linux has AVX512_VNNI, AVX512_BF16, AVX_VNNI or AMX",
        },
    }


def choose_cores(count: int) -> list[int]:
    """Choose cores to pin to, on different physical cores first; fewer if this process may not use so many.

    A container's quota limits them too: beyond it, the kernel stops the container's processes for a part of the time.
    The highest numbers are preferred, because most other processes run on the lowest.
    """
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    siblings = {core: read_text(CPU / f"cpu{core}" / "topology/thread_siblings_list") or str(core) for core in allowed}
    first = {sibling: core for core, sibling in siblings.items()}  # the lowest, as the order above is descending
    chosen = sorted(allowed, key=lambda core: core not in first.values())
    quota = cgroup_limits()["cpu_cores"]
    return sorted(chosen[: min(count, max(1, int(quota))) if quota else count])


class MachineLoad:
    """The load of the machine from construction on."""

    def __init__(self) -> None:
        """Read the counters."""
        self._average, self._times = os.getloadavg(), core_times()["cpu"]

    def facts(self) -> JsonObject:
        """Return the load average before and after, and the shares of all cores' time: busy, and used by the host."""
        worked, idle, stolen = (after - before for before, after in zip(self._times, core_times()["cpu"], strict=True))
        total = worked + idle + stolen or 1
        return {
            "average_before": [round(value, 2) for value in self._average],
            "average_after": [round(value, 2) for value in os.getloadavg()],
            "busy": round(1 - idle / total, 3),
            "stolen": round(stolen / total, 3),
        }


class OtherCores:
    """The cores of the machine that the models do not run on."""

    def __init__(self, own: Sequence[int]) -> None:
        """Leave out the cores of the models."""
        self._left_out = {"cpu", *(f"cpu{core}" for core in own)}

    def seconds(self) -> tuple[float, float]:
        """Return the seconds since boot that these cores were used, and all their seconds, summed over them."""
        times = [spent for name, spent in core_times().items() if name not in self._left_out]
        return sum(worked + stolen for worked, _, stolen in times), sum(map(sum, times))

    def used_share(self, since: tuple[float, float]) -> float:
        """Return the share of their time that was used since an earlier result of `seconds`."""
        used, total = (after - before for before, after in zip(since, self.seconds(), strict=True))
        return used / total if total > 0 else 0.0
