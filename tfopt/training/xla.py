"""The steps of training compiled by XLA: whole, or in the clusters that TensorFlow finds itself."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from tfopt.errors import ComponentError

FLAG = "--tf_xla_cpu_global_jit"


def compile_steps(model: Any, how: str) -> None:
    """Compile a model's steps (``on``), or not (``off``); otherwise leave it as its module compiled it.

    Raises:
        ComponentError: When XLA can not compile one of its layers.
    """
    if how not in ("on", "off"):
        return
    model.jit_compile = how == "on"
    if how == "on" and not model.jit_compile:
        unable = [layer.name for layer in model.layers if not getattr(layer, "supports_jit", True)]
        raise ComponentError(
            f"jit_compile=on, and layers that XLA can not compile: {', '.join(unable) or model.name}",
            "layers that it can",
            "move text and tables into preprocess(), or pass jit_compile=clusters or off",
        )


@contextlib.contextmanager
def clusters(how: str) -> Iterator[None]:
    """Let TensorFlow compile what it can of everything that runs in the block, where that is asked for.

    Raises:
        ComponentError: When it would do nothing, on a CPU without the flag.
    """
    if how != "clusters":
        yield
        return
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU") and FLAG not in os.environ.get("TF_XLA_FLAGS", ""):
        raise ComponentError(
            "jit_compile=clusters without a GPU",
            f"{FLAG} in TF_XLA_FLAGS: TensorFlow makes no clusters for a CPU otherwise",
            f"set TF_XLA_FLAGS={FLAG} before the step starts, or pass jit_compile=on",
        )
    was_on = bool(tf.config.optimizer.get_jit())
    tf.config.optimizer.set_jit(True)
    try:
        yield
    finally:
        tf.config.optimizer.set_jit(was_on)
