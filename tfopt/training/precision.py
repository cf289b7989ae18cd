"""Mixed precision: the user's model is built to compute in 16 bits while it learns, and in float32 when it is saved.

Variables, losses and what ``preprocess`` computes are float32 all the time; Keras scales the loss under
``mixed_float16``. Source: Micikevicius et al., Mixed Precision Training, 2018, https://arxiv.org/abs/1710.03740.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError

AS_BUILT = "module"  # whatever the user's module says
FLOAT32 = "float32"
MULTIPLE = 8  # what matrix units work in


@contextlib.contextmanager
def layers_compute_in(precision: str, module: Path) -> Iterator[None]:
    """Let layers that are made in the block compute so.

    Raises:
        ComponentError: When the module says something else itself.
    """
    if precision == AS_BUILT:
        yield
        return
    libraries = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    for keras in libraries:
        keras.mixed_precision.set_global_policy(precision)
    try:
        yield
        policies = {keras.mixed_precision.global_policy().name for keras in libraries} - {precision}
    finally:
        for keras in libraries:
            keras.mixed_precision.set_global_policy(FLOAT32)
    if policies:
        raise ComponentError(
            f"precision={precision}, and build_model() of {module} sets the policy {', '.join(sorted(policies))}",
            "one of them",
            f"take it out of the module, or pass precision={AS_BUILT}",
        )


def supported() -> list[str]:
    """The precisions that this device computes in faster than by converting, float32 first."""
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if devices:
        capability = min(
            tf.config.experimental.get_device_details(device).get("compute_capability", (0, 0)) for device in devices
        )
        halves = {"mixed_float16": (7, 0), "mixed_bfloat16": (8, 0)}
        return [FLOAT32, *(name for name, least in halves.items() if capability >= least)]
    described = Path("/proc/cpuinfo")
    flags = described.read_text() if described.exists() else ""
    return [FLOAT32, *(["mixed_bfloat16"] if "avx512_bf16" in flags or "amx_bf16" in flags else [])]


def odd_sizes(model: Any) -> list[str]:
    """The layers, but the last, whose units or filters are no multiple of what matrix units work in."""
    last = {*getattr(model, "output_names", ()), model.layers[-1].name}
    sizes = {
        layer.name: getattr(layer, "units", None) or getattr(layer, "filters", None)
        for layer in model.layers
        if layer.name not in last
    }
    return [f"{name} {size}" for name, size in sizes.items() if isinstance(size, int) and size % MULTIPLE]
