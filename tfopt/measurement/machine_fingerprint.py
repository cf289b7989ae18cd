"""Describe the machine and the software versions that measurements depend on."""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tfopt
from tfopt.artifacts.formats import KERAS, RUNTIME_PACKAGES, TENSORFLOW, installed_versions
from tfopt.tensorrt.machine import list_gpus
from tfopt.value_types import JsonObject

INSTRUCTION_SETS = re.compile(r"(sse4|avx|fma|f16c|amx|asimd|sve|bf16|i8mm)\w*")
CPU = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")


def fingerprint(cores: Sequence[int] = ()) -> JsonObject:
    """Describe the machine and the software.

    Args:
        cores: The cores that models are pinned to; empty for all that this process may use.
    """
    cores = list(cores) or sorted(os.sched_getaffinity(0))
    own = {"python": platform.python_version(), "tfopt": tfopt.__version__}
    return {
        "cpu": cpu_facts(),
        "gpus": list_gpus(),
        "affinity": cores,
        "governor": read_text(CPU / f"cpu{cores[0]}" / "cpufreq/scaling_governor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cgroup": cgroup_limits(),
        "container": _container(),
        "platform": platform.platform(),
        "versions": {**own, **installed_versions(RUNTIME_PACKAGES)},
        "tensorflow_build": _tensorflow_build(),
    }


def describe_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences that affect training speed, ignoring what one of the two fingerprints lacks.

    >>> describe_differences({"cpu": {"model": "A", "usable_cores": 2}}, {"cpu": {"model": "B", "usable_cores": 2}})
    ['CPU A became B']
    """
    before, after = dict(_aspects(then)), dict(_aspects(now))
    names = [name for name in before if None not in (before[name], after.get(name))]
    changes = [f"{name} {before[name]} became {after[name]}" for name in names if before[name] != after[name]]
    cpus, versions = ([each.get(name) or {} for each in (then, now)] for name in ("cpu", "versions"))
    if cpus[0].get("model") == cpus[1].get("model"):
        old, new = (set(cpu.get("instruction_sets") or ()) for cpu in cpus)
        changes += [f"without the instructions {', '.join(sorted(old - new))}"] if old - new else []
        changes += [f"with the instructions {', '.join(sorted(new - old))}"] if new - old else []
    builds = [each.get("tensorflow_build") for each in (then, now)]
    if None not in builds and builds[0] != builds[1] and versions[0].get("tensorflow") == versions[1].get("tensorflow"):
        changes.append("another build of the same TensorFlow")
    return changes


def read_text(file: Path) -> str | None:
    """Return the content of a file without surrounding white space; None if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return None


def _aspects(fingerprint: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    cpu, limits, versions = (fingerprint.get(name) or {} for name in ("cpu", "cgroup", "versions"))
    yield "CPU", cpu.get("model")
    cores = [count for count in (cpu.get("usable_cores"), limits.get("cpu_cores")) if count]
    yield "cores", f"{min(cores):g}" if cores else None
    memory = [size for size in (fingerprint.get("memory_bytes"), limits.get("memory_bytes")) if size]
    yield "memory", f"{min(memory) / 1e9:.2g} GB" if memory else None
    gpus = fingerprint.get("gpus")
    yield "GPUs", None if gpus is None else ", ".join(sorted(gpu["name"] for gpu in gpus)) or "none"
    for package in KERAS:
        if versions:
            yield package, versions.get(package, "none")


def cpu_facts() -> JsonObject:
    """Return the model, number and instruction sets of the processors."""
    cpuinfo = read_text(Path("/proc/cpuinfo")) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.M)
    return {
        "model": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [flag for flag in flags[1].split() if INSTRUCTION_SETS.fullmatch(flag)] if flags else [],
    }


def cgroup_limits() -> dict[str, float | None]:
    """Return the limits of cgroup v2 or v1; None for a limit that is not set or not visible."""
    own = re.search(r"^0::/(.*)$", read_text(Path("/proc/self/cgroup")) or "", re.M)
    folders = [CGROUPS / own[1], CGROUPS] if own else [CGROUPS]
    quota = _first([folder / "cpu.max" for folder in folders])
    if quota is None and (old := read_text(CGROUPS / "cpu/cpu.cfs_quota_us")):
        quota = f"{old} {read_text(CGROUPS / 'cpu/cpu.cfs_period_us')}"
    memory = _first([*(folder / "memory.max" for folder in folders), CGROUPS / "memory/memory.limit_in_bytes"])
    share = [int(word) for word in (quota or "").split() if word.isdecimal()]
    limited = memory is not None and memory.isdecimal() and int(memory) < 1 << 62  # v1 has a huge number for no limit
    return {
        "cpu_cores": share[0] / share[1] if len(share) == 2 else None,
        "memory_bytes": int(memory) if limited and memory else None,
    }


def _container() -> str | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    marks = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}
    return next((name for name, mark in marks.items() if Path(mark).exists()), None)


def _tensorflow_build() -> str | None:
    """Return the digest of TensorFlow's library from its package record; builds of one version can differ."""
    for package in TENSORFLOW:
        try:
            record = metadata.distribution(package).read_text("RECORD") or ""
        except metadata.PackageNotFoundError:
            continue
        if match := re.search(r"^tensorflow/libtensorflow_cc\.[^,]+,sha256=([^,]+),", record, re.M):
            return match[1]
    return None


def _first(files: Sequence[Path]) -> str | None:
    return next((text for file in files if (text := read_text(file))), None)
