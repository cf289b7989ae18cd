"""Memory of the devices: taken as it is needed, or no more than is allowed; and what running out of it looks like."""

import logging
from typing import Any

OUT = "ResourceExhaustedError"

log = logging.getLogger("tfopt")


def take_as_needed(gpu_memory_mb: int) -> None:
    """Let each GPU give memory as it is needed, or so much at most; before TensorFlow uses one.

    Args:
        gpu_memory_mb: The most of each GPU; no limit when 0.
    """
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            if gpu_memory_mb:
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=gpu_memory_mb)
                tf.config.set_logical_device_configuration(gpu, [limit])
            else:
                tf.config.experimental.set_memory_growth(gpu, True)
        except (RuntimeError, ValueError) as error:
            log.warning("%s: its memory stays as it was set up before: %s", gpu.name, error)


def ran_out(error: BaseException | None) -> Any:
    """The exception that says so, among those that led to this one; None when memory was not the matter."""
    while error is not None and type(error).__name__ != OUT:
        error = error.__cause__ or error.__context__
    return error
