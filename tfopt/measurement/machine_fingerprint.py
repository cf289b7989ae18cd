"""The machine and the software that numbers were measured with: others give others."""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tfopt
from tfopt.tensorrt import nvidia

PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "ai-edge-litert", "onnxruntime", "openvino", "numpy")
LEARNING = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras")
INSTRUCTION_SETS = re.compile(r"(sse4|avx|fma|f16c|amx|asimd|sve|bf16|i8mm)\w*")
CPU = Path("/sys/devices/system/cpu")


def fingerprint(cores: Sequence[int] = ()) -> dict[str, Any]:
    """Describe the machine and the software.

    Args:
        cores: The ones the models are pinned to; those that this process may use when there are none.
    """
    cores = list(cores) or sorted(os.sched_getaffinity(0))
    return {
        "cpu": _cpu(),
        "gpus": nvidia.gpus(),
        "affinity": cores,
        "governor": content(CPU / f"cpu{cores[0]}" / "cpufreq/scaling_governor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cgroup": _cgroup(),
        "container": _container(),
        "platform": platform.platform(),
        "versions": {"python": platform.python_version(), "tfopt": tfopt.__version__, **_versions()},
        "tensorflow_build": _tensorflow_build(),
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what is other, of what the speed of a training hangs on; nothing of what one of the two does not know.

    >>> differences({"cpu": {"model": "A", "usable_cores": 2}}, {"cpu": {"model": "B", "usable_cores": 2}})
    ['CPU A became B']
    """
    before, after = dict(_aspects(then)), dict(_aspects(now))
    known = [name for name in before if None not in (before[name], after.get(name))]
    found = [f"{name} {before[name]} became {after[name]}" for name in known if before[name] != after[name]]
    cpus, versions = ([each.get(name) or {} for each in (then, now)] for name in ("cpu", "versions"))
    if cpus[0].get("model") == cpus[1].get("model"):
        had, has = (set(cpu.get("instruction_sets") or ()) for cpu in cpus)
        found += [f"without the instructions {', '.join(sorted(had - has))}"] if had - has else []
        found += [f"with the instructions {', '.join(sorted(has - had))}"] if has - had else []
    builds = [each.get("tensorflow_build") for each in (then, now)]
    if None not in builds and builds[0] != builds[1] and versions[0].get("tensorflow") == versions[1].get("tensorflow"):
        found.append("another build of the same TensorFlow")
    return found


def content(file: Path) -> str | None:
    """What a file says, without white space around it; None when it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return None


def _aspects(known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    cpu, limits, versions = (known.get(name) or {} for name in ("cpu", "cgroup", "versions"))
    yield "CPU", cpu.get("model")
    cores = [count for count in (cpu.get("usable_cores"), limits.get("cpu_cores")) if count]
    yield "cores", f"{min(cores):g}" if cores else None
    memory = [size for size in (known.get("memory_bytes"), limits.get("memory_bytes")) if size]
    yield "memory", f"{min(memory) / 1e9:.2g} GB" if memory else None
    gpus = known.get("gpus")
    yield "GPUs", None if gpus is None else ", ".join(sorted(gpu["name"] for gpu in gpus)) or "none"
    for package in LEARNING:
        if versions:
            yield package, versions.get(package, "none")


def _cpu() -> dict[str, Any]:
    described = content(Path("/proc/cpuinfo")) or ""
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
    own = re.search(r"^0::/(.*)$", content(Path("/proc/self/cgroup")) or "", re.M)
    root = Path("/sys/fs/cgroup")
    folders = [root / own[1], root] if own else [root]
    quota = _first([folder / "cpu.max" for folder in folders])
    if quota is None and (old := content(root / "cpu/cpu.cfs_quota_us")):
        quota = f"{old} {content(root / 'cpu/cpu.cfs_period_us')}"
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


def _tensorflow_build() -> str | None:
    """The digest of TensorFlow's largest library, as its installer noted it; other builds have the same version."""
    for package in LEARNING[:2]:
        try:
            listed = metadata.distribution(package).read_text("RECORD") or ""
        except metadata.PackageNotFoundError:
            continue
        if found := re.search(r"^tensorflow/libtensorflow_cc\.[^,]+,sha256=([^,]+),", listed, re.M):
            return found[1]
    return None


def _first(files: Sequence[Path]) -> str | None:
    return next((text for file in files if (text := content(file))), None)
