"""Skip the tests of this folder without an NVIDIA GPU, its driver, TensorRT and CUDA's bindings.

The reason is the error of `tfopt.tensorrt.machine`.
"""

import pytest

from tfopt.errors import ComponentError
from tfopt.tensorrt import machine


@pytest.fixture(scope="session", autouse=True)
def here() -> machine.Machine:
    """Detect this machine and print it, so that a log shows what the tests ran on."""
    try:
        detected = machine.detect_machine()
    except ComponentError as error:
        pytest.skip(f"{error.received}; needed: {error.expected}")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # parents run in float32 on the CPU, and the engines get the GPU memory
    print(f"\n{detected}")
    return detected


def pytest_exception_interact(report: pytest.TestReport) -> None:
    """Print each failure at once: time on a GPU is short, and may end before the last test."""
    print(f"\n{report.nodeid}\n{report.longreprtext}")
