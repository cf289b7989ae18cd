"""Detect GPU, driver and TensorRT version of this machine; errors for libraries that it lacks."""

import importlib
import re
import shutil
import subprocess
from dataclasses import dataclass

from tfopt.error_messages import first_line
from tfopt.errors import AttemptError, ComponentError
from tfopt.value_types import JsonObject

INSTALL = (
    "use an image of kind gpu that has TensorRT (deploy/images/gpu, docs/images.md), or install NVIDIA's tensorrt "
    "package for your CUDA"
)
NO_GPU = "run this on a machine with a GPU (on Kubeflow the step requests one), or use export_onnx or export_openvino"
FIELDS = {"name": "name", "driver": "driver_version", "memory": "memory.total"}


@dataclass(frozen=True)
class Machine:
    """The properties that an engine depends on."""

    tensorrt: str  # version, ``10.11.0.33``
    compute_capability: str  # of the first GPU that CUDA sees, ``9.0``
    gpu: str  # name of that GPU
    driver: str  # version, ``570.86.15``


def detect_machine() -> Machine:
    """Detect the properties of this machine.

    Raises:
        ComponentError: If it has no GPU, no TensorRT or no CUDA bindings; with instructions for installation.
    """
    driver, version = driver_version(), _version()
    from tfopt.tensorrt import device  # imports NumPy

    capability, gpu = device.gpu_properties()
    return Machine(version, capability, gpu, driver)


def build_error(reason: str) -> ComponentError:
    """Return the error for an engine that TensorRT does not build, with TensorRT's reason."""
    received = f"TensorRT builds no engine: {reason}"
    if "nvinfer_lean" in reason:  # an engine for other versions contains a runtime, which is a library of its own
        fix = "install NVIDIA's package tensorrt_lean of TensorRT's version, or leave version_compatible out"
        return ComponentError(received, "TensorRT's lean runtime, where the linker looks for libraries", fix)
    fix = "choose another precision, smaller shapes or a larger workspace_mb, and see nvidia-smi for memory"
    return ComponentError(received, "a network that it has kernels and memory for", fix)


def _version() -> str:
    """Return TensorRT's version, after checking that CUDA's bindings are installed."""
    for module, fix in (("cuda.bindings.runtime", "pip install 'tfopt[tensorrt]'"), ("tensorrt", INSTALL)):
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # stubs and incomplete installations fail in many ways
            received = f"import {module}: {first_line(error)}"
            raise ComponentError(received, "TensorRT, and CUDA's bindings for Python", fix) from error
    return str(loaded.__version__)


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
        raise AttemptError("no nvidia-smi on this machine", "an NVIDIA GPU and its driver", NO_GPU)
    try:
        process = subprocess.run([command, *words], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AttemptError(f"nvidia-smi: {first_line(error)}", "a driver that responds", NO_GPU) from error
    lines = (process.stdout + process.stderr).strip().splitlines() or ["no output"]
    if process.returncode or not process.stdout.strip():
        raise AttemptError(f"nvidia-smi: {lines[0]}", "an NVIDIA GPU and a driver that responds", NO_GPU)
    return process.stdout.strip()
