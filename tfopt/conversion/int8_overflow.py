"""Whether the 8-bit products of this CPU overflow, so that weights must leave a bit unused."""

import platform
import re
from pathlib import Path

VNNI = re.compile(r"\b(avx512_vnni|avx_vnni|amx_int8)\b")


def needs_reduced_range(described: Path = Path("/proc/cpuinfo"), machine: str | None = None) -> bool:
    """Whether this CPU's 8-bit products overflow: an x86 without VNNI, which adds two of them in 16 bits.

    Args:
        described: What Linux says of the CPU.
        machine: Its kind; this one's when None.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64", "i686"):
        return False
    return not (described.is_file() and VNNI.search(described.read_text()))
