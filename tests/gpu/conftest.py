"""Engines are built and run here, which takes an NVIDIA GPU, its driver, TensorRT and CUDA's bindings.

Without them every test is skipped, with the reason in the words of `tfopt.tensorrt.machine`.
"""

import pytest

from tfopt.errors import ComponentError
from tfopt.tensorrt import machine


@pytest.fixture(scope="session", autouse=True)
def here() -> machine.Machine:
    """This machine, printed so that a log says what the tests ran on."""
    try:
        found = machine.find()
    except ComponentError as error:
        pytest.skip(f"{error.received}; needed: {error.expected}")
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # the parents answer in float32, and leave the memory to the engines
    print(f"\n{found}")
    return found
