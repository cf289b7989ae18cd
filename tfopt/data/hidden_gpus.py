"""Processes that only read data do not use a GPU: its memory is left to the processes that run models."""

import logging

log = logging.getLogger(__name__)


def hide_gpus() -> None:
    """Hide all GPUs from TensorFlow in this process, for good; without effect if TensorFlow has used one."""
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        log.debug("GPUs remain visible in this process: %s", error)
