"""Find the kernels of a model that are clustered, and the reasons why others are not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches
from tfopt.keras_models.weight_constraints import MIN_WEIGHTS_PER_VALUE

NAMES = ("kernel", "pointwise_kernel")


def find_kernels(model: Any, clusters: int, patterns: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model once, nested layers included.

    ``patterns`` are names of the layers to cluster, with ``*`` and ``?``; all when empty.

    Raises:
        ComponentError: If there is none to cluster, or a name matches no layer.
    """
    kernels = [replace(kernel, left=_reason(kernel, clusters, patterns)) for kernel in kernels_of(model, NAMES)]
    check_patterns(patterns, kernels)
    if all(kernel.left for kernel in kernels):
        reasons = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in kernels[:3]) or "no layer has a kernel"
        raise ComponentError(
            f"model {model.name}: nothing to cluster ({reasons})",
            f"a kernel of at least {MIN_WEIGHTS_PER_VALUE} times {clusters} weights",
            "pass fewer clusters, or leave this step out",
        )
    return kernels


def _reason(kernel: Kernel, clusters: int, patterns: Sequence[str]) -> str | None:
    size = int(np.prod(kernel.variable.shape))
    if patterns and not matches(kernel.path, patterns):
        return "not one of the selected layers"
    return f"{size} weights, too few for {clusters} values" if size < MIN_WEIGHTS_PER_VALUE * clusters else None
