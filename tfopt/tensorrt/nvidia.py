"""What NVIDIA's driver says of the GPUs of this machine."""

import re
import shutil
import subprocess
from typing import Any

from tfopt.errors import ComponentError, first_line

ELSEWHERE = "run this where there is one (on Kubeflow the step asks for a GPU), or use export_onnx or export_openvino"
FIELDS = {"name": "name", "driver": "driver_version", "memory": "memory.total"}


def gpus() -> list[dict[str, Any]]:
    """Describe each GPU, with the newest CUDA that the driver runs; nothing where there is none to be seen."""
    try:
        rows = smi(f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader")
        cuda = re.search(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)", smi())
    except ComponentError:
        return []
    cells = [[cell.strip() for cell in row.split(",")] for row in rows.splitlines()]
    return [dict(zip(FIELDS, row, strict=False)) | {"cuda": cuda[1] if cuda else None} for row in cells]


def driver() -> str:
    """The driver's version.

    Raises:
        ComponentError: When there is no GPU, or no driver that answers.
    """
    return smi("--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0].strip()


def smi(*words: str) -> str:
    """What ``nvidia-smi`` answers.

    Raises:
        ComponentError: When it is not there, fails, or says nothing.
    """
    command = shutil.which("nvidia-smi")
    if not command:
        raise ComponentError("no nvidia-smi on this machine", "an NVIDIA GPU and its driver", ELSEWHERE)
    try:
        found = subprocess.run([command, *words], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ComponentError(f"nvidia-smi: {first_line(error)}", "a driver that answers", ELSEWHERE) from error
    lines = (found.stdout + found.stderr).strip().splitlines() or ["it says nothing"]
    if found.returncode or not found.stdout.strip():
        raise ComponentError(f"nvidia-smi: {lines[0]}", "an NVIDIA GPU and a driver that answers", ELSEWHERE)
    return found.stdout.strip()
