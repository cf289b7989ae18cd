"""The machine an engine is built or loaded on: its GPU, driver and TensorRT, or what it lacks and how to get it."""

import importlib
import shutil
import subprocess
from dataclasses import dataclass

from tfopt.errors import ComponentError, first_line

ELSEWHERE = "run this where there is one (on Kubeflow the step asks for a GPU), or use export_onnx or export_openvino"
INSTALL = "use the image kind tensorrt (deploy/images/tensorrt), or install NVIDIA's tensorrt package for your CUDA"


@dataclass(frozen=True)
class Machine:
    """What decides whether an engine runs here.

    Attributes:
        tensorrt: TensorRT's version, ``10.11.0.33``.
        compute_capability: Of the first GPU that CUDA sees, ``9.0``.
        gpu: Its name.
        driver: The driver's version, ``570.86.15``.
    """

    tensorrt: str
    compute_capability: str
    gpu: str
    driver: str


def find() -> Machine:
    """Look at this machine.

    Raises:
        ComponentError: When it has no GPU, no TensorRT or no CUDA bindings; with how to get what is missing.
    """
    driver, version = _driver(), _version()
    from tfopt.tensorrt import device

    capability, gpu = device.properties()
    return Machine(version, capability, gpu, driver)


def _driver() -> str:
    command = shutil.which("nvidia-smi")
    if not command:
        raise ComponentError("no nvidia-smi on this machine", "an NVIDIA GPU and its driver", ELSEWHERE)
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ComponentError(f"nvidia-smi: {first_line(error)}", "a driver that answers", ELSEWHERE) from error
    lines = (found.stdout + found.stderr).strip().splitlines() or ["it says nothing"]
    if found.returncode or not found.stdout.strip():
        raise ComponentError(f"nvidia-smi: {lines[0]}", "an NVIDIA GPU and a driver that answers", ELSEWHERE)
    return lines[0].strip()


def _version() -> str:
    """TensorRT's; and CUDA's bindings are there."""
    for module, fix in (("cuda.bindings.runtime", "pip install 'tfopt[tensorrt]'"), ("tensorrt", INSTALL)):
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # stubs and half-installed libraries fail in many ways
            said = f"import {module}: {first_line(error)}"
            raise ComponentError(said, "TensorRT, and CUDA's bindings for Python", fix) from error
    return str(loaded.__version__)
