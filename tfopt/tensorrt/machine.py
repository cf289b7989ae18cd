"""The machine an engine is built or loaded on: its GPU, driver and TensorRT, or what it lacks and how to get it."""

import importlib
from dataclasses import dataclass

from tfopt.errors import ComponentError, first_line
from tfopt.tensorrt import nvidia

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
    driver, version = nvidia.driver(), _version()
    from tfopt.tensorrt import device

    capability, gpu = device.properties()
    return Machine(version, capability, gpu, driver)


def _version() -> str:
    """TensorRT's; and CUDA's bindings are there."""
    for module, fix in (("cuda.bindings.runtime", "pip install 'tfopt[tensorrt]'"), ("tensorrt", INSTALL)):
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # stubs and half-installed libraries fail in many ways
            said = f"import {module}: {first_line(error)}"
            raise ComponentError(said, "TensorRT, and CUDA's bindings for Python", fix) from error
    return str(loaded.__version__)
