"""Where the numbers come from: another machine, build or load gives others."""

import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tfopt
from tfopt import nvidia
from tfopt.serving.environment import ONEDNN

PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "ai-edge-litert", "onnxruntime", "openvino", "numpy")
INSTRUCTION_SETS = re.compile(r"(sse4|avx|fma|f16c|amx|asimd|sve|bf16|i8mm)\w*")
CPU = Path("/sys/devices/system/cpu")


def fingerprint(cores: Sequence[int]) -> dict[str, Any]:
    """Describe the machine and the software.

    Args:
        cores: The ones the models are pinned to.
    """
    return {
        "cpu": _cpu(),
        "gpus": nvidia.gpus(),
        "affinity": list(cores),
        "governor": _text(CPU / f"cpu{cores[0]}" / "cpufreq/scaling_governor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cgroup": _cgroup(),
        "container": _container(),
        "platform": platform.platform(),
        "versions": {"python": platform.python_version(), "tfopt": tfopt.__version__, **_versions()},
    }


def tensorflow(facts: dict[str, Any], log: Path) -> dict[str, Any]:
    """Describe TensorFlow as one model's process had it.

    Args:
        facts: What the process itself found.
        log: What it printed. Only there does TensorFlow name the instruction sets that its build leaves unused, and
            whether oneDNN, which brings its own code for them, is on.
    """
    printed = log.read_text(errors="replace")
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
    siblings = {core: _text(CPU / f"cpu{core}" / "topology/thread_siblings_list") or str(core) for core in allowed}
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


def _cpu() -> dict[str, Any]:
    described = _text(Path("/proc/cpuinfo")) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", described, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", described, re.M)
    return {
        "model": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [flag for flag in flags[1].split() if INSTRUCTION_SETS.fullmatch(flag)] if flags else [],
    }


def _cgroup() -> dict[str, float | None]:
    """The limits of cgroup v2 or v1; None where there are none, or none to be seen from in here."""
    own = re.search(r"^0::/(.*)$", _text(Path("/proc/self/cgroup")) or "", re.M)
    root = Path("/sys/fs/cgroup")
    folders = [root / own[1], root] if own else [root]
    quota = _first([folder / "cpu.max" for folder in folders])
    if quota is None and (old := _text(root / "cpu/cpu.cfs_quota_us")):
        quota = f"{old} {_text(root / 'cpu/cpu.cfs_period_us')}"
    memory = _first([*(folder / "memory.max" for folder in folders), root / "memory/memory.limit_in_bytes"])
    share = [int(word) for word in (quota or "").split() if word.isdecimal()]
    limited = memory is not None and memory.isdecimal() and int(memory) < 1 << 62  # v1 says "none" with a huge number
    return {
        "cpu_cores": share[0] / share[1] if len(share) == 2 else None,
        "memory_bytes": int(memory) if limited and memory else None,
    }


def _container() -> str | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    marks = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}
    return next((name for name, mark in marks.items() if Path(mark).exists()), None)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all cores since boot."""
    line = (_text(Path("/proc/stat")) or "").partition("\n")[0].split()[1:9]
    return [int(word) for word in line] or [0] * 8


def _first(files: Sequence[Path]) -> str | None:
    return next((text for file in files if (text := _text(file))), None)


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
