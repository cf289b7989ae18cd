"""Which weights of a model are pruned: the kernels of its layers, and why some are left as they are."""

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.components.prune.masks import as_matrix
from tfopt.components.prune.pattern import Pattern
from tfopt.errors import ComponentError, nearest

NAMES = ("kernel", "recurrent_kernel", "pointwise_kernel")
TRANSPOSED = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        layer: The layer that owns it; of a cell, the cell.
        path: The layer's name as the model tells it apart, ``block/dense`` where it is nested.
        name: Of the weight in its layer.
        variable: The weight.
        axis: Of the input channels.
        left: Why it is not pruned; None when it is.
    """

    layer: Any
    path: str
    name: str
    variable: Any
    axis: int
    left: str | None

    @property
    def values(self) -> NDArray[Any]:
        """The weights now."""
        return np.asarray(self.variable.numpy())


def find_kernels(model: Any, pattern: Pattern, chosen: Sequence[str]) -> list[Kernel]:
    """Return every kernel of the model, nested layers included, each once.

    Args:
        model: A Keras model.
        pattern: What the zeros should look like.
        chosen: Names of the layers to prune, ``*`` and ``?`` stand for other letters; all when empty.

    Raises:
        ComponentError: When there is none to prune, a name fits no layer, or a layer named here cannot be pruned so.
    """
    found = list(_kernels(model, pattern, chosen))
    names = [kernel.path for kernel in found]
    for wanted in chosen:
        fitting = [kernel for kernel in found if fits(kernel.path, [wanted])]
        if not fitting:
            raise ComponentError(f"layers: {wanted!r}", "names of layers with a kernel", nearest(wanted, names))
        refused = next((kernel for kernel in fitting if kernel.left), None)
        if refused and "*" not in wanted:
            raise ComponentError(
                f"layer {refused.path!r}: {refused.left}",
                f"a layer that pattern={pattern.name!r} fits",
                "leave the layer out, or choose pattern='magnitude', which fits every kernel",
            )
    if all(kernel.left for kernel in found):
        why = "; ".join(f"{kernel.path}: {kernel.left}" for kernel in found[:3]) or "no layer has a kernel"
        raise ComponentError(
            f"model {model.name}: nothing to prune ({why})",
            f"a layer that pattern={pattern.name!r} fits",
            "choose pattern='magnitude', which fits every kernel" if found else "give a model with layers that learn",
        )
    return found


def _kernels(model: Any, pattern: Pattern, chosen: Sequence[str]) -> Iterator[Kernel]:
    seen: set[int] = set()
    toolkit = keras_models.is_keras_2(model)
    for path, layer in _layers(model):
        for name in NAMES:
            variable = getattr(layer, name, None)
            if variable is None or id(variable) in seen or not hasattr(variable, "assign"):
                continue
            seen.add(id(variable))
            shape = tuple(variable.shape)
            if len(shape) < 2 or "DepthwiseConv" in type(layer).__name__:
                continue  # one small filter for each channel: few weights, and no runtime has sparse ones
            axis = _input_axis(layer, len(shape))
            named = not chosen or fits(path, chosen)
            left = _unfit(layer, shape, axis, pattern, toolkit) if named else "not among the layers chosen"
            yield Kernel(layer, path, name, variable, axis, left)


def _layers(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each layer that holds weights itself, with the names of the models and layers around it."""
    for layer in model._flatten_layers(recursive=False, include_self=False):
        yield prefix + layer.name, layer
        yield from _layers(layer, f"{prefix}{layer.name}/")


def _unfit(layer: Any, shape: tuple[int, ...], axis: int, pattern: Pattern, toolkit: bool) -> str | None:
    n, m = pattern.ratio
    if pattern.name == "n_m" and type(layer).__name__ in TRANSPOSED:
        return "a transposed convolution, which no runtime has with sparse groups"
    if pattern.name == "n_m" and shape[axis] % m:
        return f"{shape[axis]} input channels are not divisible by {m}, of {n}:{m}"
    if pattern.name == "n_m" and toolkit and len(shape) not in (2, 4):
        return f"a kernel of {len(shape)} dimensions, of which the toolkit for Keras 2 prunes no groups"
    if pattern.name == "block" and len(shape if toolkit else as_matrix(shape)) != 2:
        matrices = "Dense" if toolkit else "Dense or a 1x1 convolution"
        return f"a kernel of {'x'.join(map(str, shape))}, and blocks need a matrix ({matrices})"
    return None


def _input_axis(layer: Any, rank: int) -> int:
    """Of the weights that are multiplied and summed up into one value, the axis that lies closest together."""
    if type(layer).__name__ in TRANSPOSED:
        return rank - 1
    if type(layer).__name__ == "EinsumDense":
        terms, output = layer.equation.replace(" ", "").split("->")
        summed = [place for place, letter in enumerate(terms.split(",")[1]) if letter not in output]
        return summed[-1] if summed else rank - 2
    return rank - 2


def fits(path: str, patterns: Sequence[str]) -> bool:
    """A name stands for all that is inside it as well."""
    return any(fnmatch.fnmatchcase(path, wanted) or fnmatch.fnmatchcase(path, f"{wanted}/*") for wanted in patterns)
