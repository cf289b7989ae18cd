"""Whether a runtime turns the zeros of a kernel into speed, and why not.

References:
    XNNPACK's delegate, "Sparse inference" in its README: 1x1 convolutions of a network that starts with a 3x3
    convolution of stride 2 on 3 channels. TensorRT, "Working with structured sparsity": 2:4 along the input channels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfopt.components.prune.kernels import TRANSPOSED, Prunable
from tfopt.components.prune.patterns import is_n_m

RUNTIMES = ("xnnpack", "tensorrt", "others")
LEAST = 2 / 3  # of the weights, before XNNPACK takes its sparse kernels
ANYWHERE_ELSE = "no: it multiplies by zeros as by any number"


def speed(kernel: Prunable, first: Prunable) -> Mapping[str, str]:
    """Return for each runtime ``yes``, on a condition, or ``no`` and the reason.

    Args:
        kernel: As it is after pruning.
        first: The model's first kernel, from which XNNPACK judges the network.
    """
    return {"xnnpack": _xnnpack(kernel, first), "tensorrt": _tensorrt(kernel), "others": ANYWHERE_ELSE}


def _xnnpack(kernel: Prunable, first: Prunable) -> str:
    shape, kind = tuple(kernel.variable.shape), type(kernel.layer).__name__
    if kind != "Conv2D" or shape[:2] != (1, 1):
        return "no: it has sparse 1x1 convolutions only"
    if np.mean(kernel.values == 0) < LEAST:
        return f"no: under {LEAST:.0%} zeros"
    opening = tuple(first.variable.shape)
    stride = tuple(getattr(first.layer, "strides", ()))
    if opening[:3] != (3, 3, 3) or stride != (2, 2):
        return "no: only in a network that starts with a 3x3 convolution of stride 2 on 3 channels"
    return "yes: if the file is exported sparse in float32; measure it"


def _tensorrt(kernel: Prunable) -> str:
    kind: str = type(kernel.layer).__name__
    if kind in TRANSPOSED or not any(word in kind for word in ("Conv", "Dense")):
        return "no: it has sparse convolutions and matrix products only"
    if not is_n_m(kernel.values, 2, 4, kernel.axis):
        return "no: it takes 2 zeros in every 4 input channels only (pattern='n_m')"
    return "yes: in float16 or int8, on a GPU of compute capability 8.0 or later"


def in_words(found: Sequence[Mapping[str, Any]]) -> str:
    """Say in a line what the zeros are worth to the runtimes."""
    useful = {
        runtime: sum(layer["speed"][runtime].startswith("yes") for layer in found)
        for runtime in ("xnnpack", "tensorrt")
    }
    able = [f"{runtime} in {count} of {len(found)} layers" for runtime, count in useful.items() if count]
    return (
        f"zeros can become speed: {', '.join(able)}" if able else "zeros make the file smaller, and no runtime faster"
    )
