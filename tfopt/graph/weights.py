"""Weights of a GraphDef, its large constants: copies without the values, which TensorFlow copies many times."""

import math
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from tfopt.graph.const_arrays import array_of

LARGE_BYTES = 64 << 10  # of a constant; the values of smaller ones may determine shapes, and take no time


def feed_weights(graph_def: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return a copy of a GraphDef whose weights are placeholders, and their values by tensor (``name:0``).

    A session with the copy reads the values where they are. A graph with constants is copied when it is imported, when
    it is sent to the session, and when the session runs it.
    """
    values: dict[str, NDArray[Any]] = {}

    def replace(node: Any, copy: Any) -> None:
        tensor = node.attr["value"].tensor
        values[f"{node.name}:0"] = array_of(tensor)
        copy.op = "Placeholder"
        copy.attr["dtype"].type = tensor.dtype
        copy.attr["shape"].shape.CopyFrom(tensor.tensor_shape)

    return _without_values(graph_def, replace), values


def zero_weights(graph_def: Any) -> Any:
    """Return a copy of a GraphDef whose weights are zeros, of the same dtypes and shapes, which take no memory."""

    def replace(node: Any, copy: Any) -> None:
        tensor = node.attr["value"].tensor
        copy.op = "Const"
        copy.attr["dtype"].type = copy.attr["value"].tensor.dtype = tensor.dtype
        copy.attr["value"].tensor.tensor_shape.CopyFrom(tensor.tensor_shape)

    return _without_values(graph_def, replace)


def _without_values(graph_def: Any, replace: Callable[[Any, Any], None]) -> Any:
    copied = type(graph_def)()
    copied.versions.CopyFrom(graph_def.versions)
    copied.library.CopyFrom(graph_def.library)
    for node in graph_def.node:
        copy = copied.node.add(name=node.name)
        if _is_weight(node):
            copy.device = node.device
            replace(node, copy)
        else:
            copy.CopyFrom(node)
    return copied


def _is_weight(node: Any) -> bool:
    """Return True for a large constant of floats or 8-bit levels; control inputs may place a constant into a loop."""
    from tensorflow import as_dtype

    if node.op != "Const" or node.input:
        return False
    tensor = node.attr["value"].tensor
    dtype = as_dtype(tensor.dtype)
    return bool(
        (dtype.is_floating or dtype.name == "int8")
        and dtype.size * math.prod(dim.size for dim in tensor.tensor_shape.dim) >= LARGE_BYTES
    )
