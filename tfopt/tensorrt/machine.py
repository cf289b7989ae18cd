"""Detect GPU, driver and TensorRT version of this machine; errors for libraries that it lacks."""

import importlib
from dataclasses import dataclass

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.tensorrt import nvidia

INSTALL = (
    "use an image of kind gpu that has TensorRT (deploy/images/gpu, docs/images.md), or install NVIDIA's tensorrt "
    "package for your CUDA"
)


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
    driver, version = nvidia.driver_version(), _version()
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
