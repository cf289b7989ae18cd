"""Query NVIDIA's driver about the GPUs of this machine."""

import re
import shutil
import subprocess

from tfopt.error_messages import first_line
from tfopt.errors import AttemptError, ComponentError
from tfopt.value_types import JsonObject

FIX = "run this on a machine with a GPU (on Kubeflow the step requests one), or use export_onnx or export_openvino"
FIELDS = {"name": "name", "driver": "driver_version", "memory": "memory.total"}


def list_gpus() -> list[JsonObject]:
    """Describe each GPU with the newest CUDA version that the driver supports; empty if there is none."""
    try:
        rows = run_nvidia_smi(f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader")
        cuda = re.search(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)", run_nvidia_smi())
    except ComponentError:
        return []
    cells = [[cell.strip() for cell in row.split(",")] for row in rows.splitlines()]
    return [dict(zip(FIELDS, row, strict=False)) | {"cuda": cuda[1] if cuda else None} for row in cells]


def driver_version() -> str:
    """Return the driver's version.

    Raises:
        ComponentError: If there is no GPU, or the driver does not respond.
    """
    return run_nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0].strip()


def run_nvidia_smi(*words: str) -> str:
    """Run ``nvidia-smi`` and return its output.

    Raises:
        ComponentError: If it does not exist, fails, or prints nothing.
    """
    command = shutil.which("nvidia-smi")
    if not command:
        raise AttemptError("no nvidia-smi on this machine", "an NVIDIA GPU and its driver", FIX)
    try:
        process = subprocess.run([command, *words], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttemptError(f"nvidia-smi: {first_line(error)}", "a driver that responds", FIX) from error
    lines = (process.stdout + process.stderr).strip().splitlines() or ["no output"]
    if process.returncode or not process.stdout.strip():
        raise AttemptError(f"nvidia-smi: {lines[0]}", "an NVIDIA GPU and a driver that responds", FIX)
    return process.stdout.strip()
