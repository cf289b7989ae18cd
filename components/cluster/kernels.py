"""Which weights of a model are clustered: the kernels of its layers, and why some are left as they are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import Kernel, check_patterns, kernels_of, matches
from tfopt.keras_models.weight_constraints import MIN_WEIGHTS_PER_VALUE

NAMES = ("kernel", "pointwise_kernel")


def find_kernels(model: Any, clusters: int, chosen: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model, nested layers included, each once.

    Args:
        model: A Keras model.
        clusters: How many values a kernel is to have.
        chosen: Names of the layers to cluster, ``*`` and ``?`` stand for other letters; all when empty.

    Raises:
        ComponentError: When there is none to cluster, or a name fits no layer.
    """
    found = [replace(kernel, left=_unfit(kernel, clusters, chosen)) for kernel in kernels_of(model, NAMES)]
    check_patterns(chosen, found)
    if all(kernel.left for kernel in found):
        why = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in found[:3]) or "no layer has a kernel"
        raise ComponentError(
            f"model {model.name}: nothing to cluster ({why})",
            f"a kernel of at least {MIN_WEIGHTS_PER_VALUE} times {clusters} weights",
            "ask for fewer clusters, or leave this step out",
        )
    return found


def _unfit(kernel: Kernel, clusters: int, chosen: Sequence[str]) -> str | None:
    size = int(np.prod(kernel.variable.shape))
    if chosen and not matches(kernel.path, chosen):
        return "not among the layers chosen"
    return f"{size} weights, too few for {clusters} values" if size < MIN_WEIGHTS_PER_VALUE * clusters else None
