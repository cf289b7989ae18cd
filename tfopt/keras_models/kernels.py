"""Kernels of a Keras model, nested layers included: the weights that are pruned and clustered."""

import fnmatch
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.formatting import data_size

MAX_LINES = 12  # of a table


@dataclass(frozen=True)
class Kernel:
    """A kernel of a layer."""

    layer: Any  # the layer that owns it; in a recurrent layer, the cell
    path: str  # name of the layer, with the models and layers around it: ``block/dense``
    name: str  # attribute of the layer that holds the kernel
    variable: Any  # the weight
    left: str | None = None  # the reason why it is not changed; None if it is changed

    @property
    def values(self) -> NDArray[Any]:
        """Return the current weights."""
        return np.asarray(self.variable.numpy())

    @property
    def gzipped(self) -> int:
        """Return the size of the current weights after gzip, in bytes."""
        return len(gzip.compress(self.values.tobytes(), 6, mtime=0))


def kernels_of(model: Any, names: Sequence[str]) -> Iterator[Kernel]:
    """Yield every kernel of the model once, by the names of a layer's attributes, except depthwise ones.

    A depthwise kernel is one small filter per channel: few weights, and no runtime has sparse or shared ones for it.
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


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Return True if a path matches a pattern with ``*`` and ``?``; a name matches everything inside it.

    >>> matches("block/dense", ["block"]), matches("block/dense", ["block/d*"]), matches("dense", ["block"])
    (True, True, False)
    """
    return any(fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"{pattern}/*") for pattern in patterns)


def check_patterns(patterns: Sequence[str], kernels: Sequence[Kernel]) -> None:
    """Raise ComponentError if a pattern matches no layer with a kernel."""
    paths = [kernel.path for kernel in kernels]
    for pattern in patterns:
        if not any(matches(path, [pattern]) for path in paths):
            raise ComponentError(f"layers: {pattern!r}", "names of layers with a kernel", nearest(pattern, paths))


def report_row(kernel: Kernel, gzipped_before: int) -> dict[str, Any]:
    """Return the facts of a changed kernel for a report: shape, share of zeros, and bytes before and after."""
    return {
        "layer": kernel.path,
        "weight": kernel.name,
        "shape": list(kernel.variable.shape),
        "sparsity": float(np.mean(kernel.values == 0)),
        "bytes": kernel.values.nbytes,
        "gzipped": kernel.gzipped,
        "gzipped_before": gzipped_before,
    }


def table_lines(layers: Sequence[Mapping[str, Any]], column: str) -> list[str]:
    """Return a table of the layers of a report: one column, gzipped bytes before and after, and why it is unchanged.

    Each layer has ``layer``, ``gzipped_before``, ``gzipped``, ``left``, and the fields in the format of the column,
    such as ``{values:5} values``.
    """
    shown = layers[:MAX_LINES]
    width = max(len(layer["layer"]) for layer in shown)
    rows = [
        f"  {layer['layer']:{width}}  {column.format(**layer)}  {data_size(layer['gzipped_before']):>8} -> "
        f"{data_size(layer['gzipped']):>8} gzipped" + (f"  left: {layer['left']}" if layer["left"] else "")
        for layer in shown
    ]
    more = len(layers) - len(shown)
    return rows + ([f"  {more} more: see report in the model card"] if more > 0 else [])


def _layers(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for layer in model._flatten_layers(recursive=False, include_self=False):
        yield prefix + layer.name, layer
        yield from _layers(layer, f"{prefix}{layer.name}/")
