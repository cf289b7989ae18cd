"""Detection of CPUs whose 8-bit products overflow, so that weights must use 7 bits."""

import platform
import re
from pathlib import Path
from typing import Literal

VNNI = re.compile(r"\b(avx512_vnni|avx_vnni|amx_int8)\b")


def is_range_reduced(reduce_range: Literal["auto", "on", "off"]) -> bool:
    """Return True if the parameter ``reduce_range`` tells the quantizer to leave one bit of the weights unused."""
    return needs_reduced_range() if reduce_range == "auto" else reduce_range == "on"


def needs_reduced_range(cpuinfo: Path = Path("/proc/cpuinfo"), machine: str | None = None) -> bool:
    """Return True if this CPU is an x86 without VNNI, which adds two 8-bit products in 16 bits."""
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64", "i686"):
        return False
    return not (cpuinfo.is_file() and VNNI.search(cpuinfo.read_text()))
