"""Where one model's numbers come from: the cores it was pinned to, TensorFlow as it ran there, and what else ran."""

import os
import re
from pathlib import Path
from typing import Any

from tfopt.measurement.machine_fingerprint import CPU, content
from tfopt.runtimes.environment import ONEDNN


def tensorflow(facts: dict[str, Any], printed: str) -> dict[str, Any]:
    """Describe TensorFlow as one model's process had it.

    Args:
        facts: What the process itself found.
        printed: What it printed. Only there does TensorFlow name the instruction sets that its build leaves unused, and
            whether oneDNN, which brings its own code for them, is on.
    """
    unused = re.search(r"enable the following instructions: ([A-Z0-9_. ]+), in other operations", printed)
    return {
        **facts,
        "instruction_sets_not_in_the_build": unused[1].split() if unused else None,
        "onednn": {
            "enabled": "oneDNN custom operations are on" in printed,
            ONEDNN: facts.get(ONEDNN),
            "default": "on where an x86 CPU under Linux has AVX512_VNNI, AVX512_BF16, AVX_VNNI or AMX",
        },
    }


def cores(count: int) -> list[int]:
    """Choose cores to pin to, of those this process may use; each of another physical core first.

    The last ones, since most of what else runs starts at the first. Fewer than asked for when there are not so many.
    """
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    siblings = {core: content(CPU / f"cpu{core}" / "topology/thread_siblings_list") or str(core) for core in allowed}
    first = {sibling: core for core, sibling in siblings.items()}  # the lowest, as the order above is descending
    chosen = sorted(allowed, key=lambda core: core not in first.values())
    return sorted(chosen[:count])


class Load:
    """How busy the machine is while something is measured."""

    def __init__(self) -> None:
        """Start counting."""
        self._average, self._ticks = os.getloadavg(), _ticks()

    def facts(self) -> dict[str, Any]:
        """The load average before and after; the parts of all cores' time that were busy, and that the host took."""
        spent = [after - before for before, after in zip(self._ticks, _ticks(), strict=True)]
        total = sum(spent) or 1
        return {
            "average_before": [round(value, 2) for value in self._average],
            "average_after": [round(value, 2) for value in os.getloadavg()],
            "busy": round(1 - (spent[3] + spent[4]) / total, 3),
            "stolen": round(spent[7] / total, 3),
        }


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all cores since boot."""
    line = (content(Path("/proc/stat")) or "").partition("\n")[0].split()[1:9]
    return [int(word) for word in line] or [0] * 8
