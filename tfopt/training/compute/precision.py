"""Mixed precision, and compilation of training steps with XLA.

The user's model is built to compute in 16 bits during training, and in float32 when it is saved. Variables, losses and
``preprocess`` are float32 all the time; Keras scales the loss under ``mixed_float16``.
Source: Micikevicius et al., Mixed Precision Training, 2018, https://arxiv.org/abs/1710.03740.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfopt.errors import ComponentError
from tfopt.training.determinism import loaded_keras

AS_BUILT = "module"  # the setting of the user's module
FLOAT32 = "float32"
MULTIPLE = 8  # matrix units are fastest if sizes are multiples of this
CPU_CLUSTERS_FLAG = "--tf_xla_cpu_global_jit"


@contextlib.contextmanager
def layer_precision(precision: str, module: Path) -> Iterator[None]:
    """Set the policy of layers that are created in the block; raise ComponentError if the module sets another one."""
    if precision == AS_BUILT:
        yield
        return
    libraries = loaded_keras()
    for keras in libraries:
        keras.mixed_precision.set_global_policy(precision)
    try:
        yield
        policies = {keras.mixed_precision.global_policy().name for keras in libraries} - {precision}
    finally:
        for keras in libraries:
            keras.mixed_precision.set_global_policy(FLOAT32)
    if policies:
        received = f"precision={precision}, and build_model() of {module} sets the policy {', '.join(sorted(policies))}"
        raise ComponentError(received, "one of them", f"remove it from the module, or pass precision={AS_BUILT}")


def fast_precisions() -> list[str]:
    """Return the precisions that this device computes in natively, float32 first."""
    devices = tf.config.list_physical_devices("GPU")
    if devices:
        capability = min(
            tf.config.experimental.get_device_details(device).get("compute_capability", (0, 0)) for device in devices
        )
        required = {"mixed_float16": (7, 0), "mixed_bfloat16": (8, 0)}
        return [FLOAT32, *(name for name, lowest in required.items() if capability >= lowest)]
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text() if cpuinfo.exists() else ""
    return [FLOAT32, *(["mixed_bfloat16"] if "avx512_bf16" in flags or "amx_bf16" in flags else [])]


def unaligned_layers(model: Any) -> list[str]:
    """Return the layers, except the last, whose units or filters are not a multiple of `MULTIPLE`."""
    last = {*getattr(model, "output_names", ()), model.layers[-1].name}
    sizes = {
        layer.name: getattr(layer, "units", None) or getattr(layer, "filters", None)
        for layer in model.layers
        if layer.name not in last
    }
    return [f"{name} {size}" for name, size in sizes.items() if isinstance(size, int) and size % MULTIPLE]


def set_jit_compile(model: Any, mode: str) -> None:
    """Compile a model's steps with XLA (``on``) or not (``off``); other modes leave it as its module compiled it.

    Raises:
        ComponentError: If XLA cannot compile one of its layers.
    """
    if mode not in ("on", "off"):
        return
    model.jit_compile = mode == "on"
    if mode == "on" and not model.jit_compile:
        unsupported = [layer.name for layer in model.layers if not getattr(layer, "supports_jit", True)]
        received = f"jit_compile=on, and layers that XLA cannot compile: {', '.join(unsupported) or model.name}"
        fix = "move text and tables into preprocess(), or pass jit_compile=clusters or off"
        raise ComponentError(received, "layers that XLA can compile", fix)


@contextlib.contextmanager
def xla_clusters(mode: str) -> Iterator[None]:
    """Let TensorFlow compile clusters of operations with XLA while the block runs, if the mode is ``clusters``.

    Raises:
        ComponentError: If it would have no effect: on a CPU without the flag.
    """
    if mode != "clusters":
        yield
        return
    if not tf.config.list_physical_devices("GPU") and CPU_CLUSTERS_FLAG not in os.environ.get("TF_XLA_FLAGS", ""):
        expected = f"{CPU_CLUSTERS_FLAG} in TF_XLA_FLAGS: otherwise TensorFlow forms no clusters on a CPU"
        fix = f"set TF_XLA_FLAGS={CPU_CLUSTERS_FLAG} before the step starts, or pass jit_compile=on"
        raise ComponentError("jit_compile=clusters without a GPU", expected, fix)
    was_on = bool(tf.config.optimizer.get_jit())
    tf.config.optimizer.set_jit(True)
    try:
        yield
    finally:
        tf.config.optimizer.set_jit(was_on)
