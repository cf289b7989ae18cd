"""TensorFloat-32: by default, GPUs from Ampere on round the inputs of float32 products to 10 bits of mantissa."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_tensor_float_32() -> Iterator[None]:
    """Let TensorFlow compute products in float32 while the block runs, on every device.

    TensorFloat-32 differs from float32 by up to 1e-4 of an output's range, and a comparison would blame a model for it.
    Without effect in a process that has not imported TensorFlow, as one that compares ONNX models.
    """
    tf = sys.modules.get("tensorflow")
    if tf is None:
        yield
        return
    was_enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(was_enabled)
