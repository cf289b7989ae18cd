"""GPU memory: allocate on demand or up to a limit, leave it to other processes, and recognize out-of-memory errors."""

import logging
import os
from pathlib import Path
from typing import Any

OUT_OF_MEMORY = "ResourceExhaustedError"
LESS_MEMORY = "make the model or its inputs smaller, pass precision=mixed_bfloat16, or use a machine with more memory"

log = logging.getLogger(__name__)


def configure_gpu_memory(gpu_memory_mb: int) -> None:
    """Let TensorFlow allocate the memory of each GPU on demand, or up to a limit that is not 0.

    Call it before TensorFlow uses a GPU.
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
            log.warning("%s: its memory configuration cannot be changed any more: %s", gpu.name, error)


def hide_gpus() -> None:
    """Hide all GPUs from TensorFlow in this process, for good; without effect if TensorFlow has used one.

    A process that only reads data leaves their memory to the processes that run models.
    """
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        log.debug("GPUs remain visible in this process: %s", error)


def gpu_count() -> int:
    """Count the NVIDIA GPUs that this process may use."""
    installed = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return installed
    return min(installed, len([device for device in visible.split(",") if device.strip() not in ("", "-1")]))


def find_out_of_memory(error: BaseException | None) -> Any:
    """Return the out-of-memory error among an exception and its causes; None if there is none."""
    while error is not None and type(error).__name__ != OUT_OF_MEMORY:
        error = error.__cause__ or error.__context__
    return error
