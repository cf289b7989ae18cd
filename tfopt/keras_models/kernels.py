"""The kernels of a Keras model: the weights that are pruned and shared, found by name in nested layers too."""

import fnmatch
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError, nearest

SHOWN = 12  # lines of a table


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        layer: The layer that owns it; of a cell, the cell.
        path: The layer's name as the model tells it apart, ``block/dense`` where it is nested.
        name: Of the weight in its layer.
        variable: The weight.
        left: Why it is left as it is; None when it is not.
    """

    layer: Any
    path: str
    name: str
    variable: Any
    left: str | None = None

    @property
    def values(self) -> NDArray[Any]:
        """The weights now."""
        return np.asarray(self.variable.numpy())

    @property
    def gzipped(self) -> int:
        """Bytes of the weights now, gzipped."""
        return len(gzip.compress(self.values.tobytes(), 6, mtime=0))


def kernels_of(model: Any, names: Sequence[str]) -> Iterator[Kernel]:
    """Yield every kernel of the model, each once; not those of depthwise convolutions.

    They are one small filter for each channel: few weights, for which no runtime has sparse or shared ones.

    Args:
        model: A Keras model of either version.
        names: Which attributes of a layer are kernels.
    """
    seen: set[int] = set()
    for path, layer in _layers(model):
        for name in names:
            variable = getattr(layer, name, None)
            if variable is None or id(variable) in seen or not hasattr(variable, "assign"):
                continue
            seen.add(id(variable))
            if len(variable.shape) > 1 and "Depthwise" not in type(layer).__name__:
                yield Kernel(layer, path, name, variable)


def fits(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path is one of those asked for: ``*`` and ``?`` stand for other letters, a name for all inside it.

    >>> fits("block/dense", ["block"]), fits("block/dense", ["block/d*"]), fits("dense", ["block"])
    (True, True, False)
    """
    return any(fnmatch.fnmatchcase(path, wanted) or fnmatch.fnmatchcase(path, f"{wanted}/*") for wanted in patterns)


def check_chosen(chosen: Sequence[str], kernels: Sequence[Kernel]) -> None:
    """Raise ComponentError when a name that was asked for fits no layer with a kernel."""
    paths = [kernel.path for kernel in kernels]
    for wanted in chosen:
        if not any(fits(path, [wanted]) for path in paths):
            raise ComponentError(f"layers: {wanted!r}", "names of layers with a kernel", nearest(wanted, paths))


def lines(layers: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    """Return a table's lines for the layers of a report: what was done, bytes before and after, why it was left.

    Args:
        layers: With ``layer``, ``gzipped_before``, ``gzipped`` and ``left``, and whatever ``what`` names.
        what: How to say what was done, as a format: ``{values:5} values``.
    """
    from tfopt.formatting import data_size

    shown = layers[:SHOWN]
    width = max(len(layer["layer"]) for layer in shown)
    found = [
        f"  {layer['layer']:{width}}  {what.format(**layer)}  {data_size(layer['gzipped_before']):>8} -> "
        f"{data_size(layer['gzipped']):>8} gzipped" + (f"  left: {layer['left']}" if layer["left"] else "")
        for layer in shown
    ]
    more = len(layers) - len(shown)
    return found + ([f"  {more} more: see report in the model card"] if more > 0 else [])


def _layers(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each layer that holds weights itself, with the names of the models and layers around it."""
    for layer in model._flatten_layers(recursive=False, include_self=False):
        yield prefix + layer.name, layer
        yield from _layers(layer, f"{prefix}{layer.name}/")
