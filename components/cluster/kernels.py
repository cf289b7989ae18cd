"""Which weights of a model are clustered: the kernels of its layers, and why some are left as they are."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError, nearest
from tfopt.shared_weights import SHARED_BY

NAMES = ("kernel", "pointwise_kernel")


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        layer: The layer that owns it.
        path: The layer's name as the model tells it apart, ``block/dense`` where it is nested.
        name: Of the weight in its layer.
        variable: The weight.
        left: Why it is not clustered; None when it is.
    """

    layer: Any
    path: str
    name: str
    variable: Any
    left: str | None

    @property
    def values(self) -> NDArray[Any]:
        """The weights now."""
        return np.asarray(self.variable.numpy())


def find_kernels(model: Any, clusters: int, chosen: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model, nested layers included, each once.

    Args:
        model: A Keras model.
        clusters: How many values a kernel is to have.
        chosen: Names of the layers to cluster, ``*`` and ``?`` stand for other letters; all when empty.

    Raises:
        ComponentError: When there is none to cluster, or a name fits no layer.
    """
    found = list(_kernels(model, clusters, chosen))
    for wanted in chosen:
        if not any(_fits(kernel.path, [wanted]) for kernel in found):
            names = [kernel.path for kernel in found]
            raise ComponentError(f"layers: {wanted!r}", "names of layers with a kernel", nearest(wanted, names))
    if all(kernel.left for kernel in found):
        why = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in found[:3]) or "no layer has a kernel"
        raise ComponentError(
            f"model {model.name}: nothing to cluster ({why})",
            f"a kernel of at least {SHARED_BY} times {clusters} weights",
            "ask for fewer clusters, or leave this step out",
        )
    return found


def _kernels(model: Any, clusters: int, chosen: Sequence[str]) -> Iterator[Kernel]:
    seen: set[int] = set()
    for path, layer in _layers(model):
        for name in NAMES:
            variable = getattr(layer, name, None)
            if variable is None or id(variable) in seen or not hasattr(variable, "assign"):
                continue
            seen.add(id(variable))
            if len(variable.shape) > 1 and "Depthwise" not in type(layer).__name__:
                yield Kernel(layer, path, name, variable, _unfit(variable, path, clusters, chosen))


def _unfit(variable: Any, path: str, clusters: int, chosen: Sequence[str]) -> str | None:
    size = int(np.prod(variable.shape))
    if chosen and not _fits(path, chosen):
        return "not among the layers chosen"
    return f"{size} weights, too few for {clusters} values" if size < SHARED_BY * clusters else None


def _layers(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each layer that holds weights itself, with the names of the models and layers around it."""
    for layer in model._flatten_layers(recursive=False, include_self=False):
        yield prefix + layer.name, layer
        yield from _layers(layer, f"{prefix}{layer.name}/")


def _fits(path: str, patterns: Sequence[str]) -> bool:
    """A name stands for all that is inside it as well."""
    return any(fnmatch.fnmatchcase(path, wanted) or fnmatch.fnmatchcase(path, f"{wanted}/*") for wanted in patterns)
