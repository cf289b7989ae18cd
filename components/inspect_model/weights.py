"""What the constants of a graph say: how many parameters, how many zeros, how many channels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.mutable_graph import Graph, Node, Tensor

# Which input is the kernel, and which of its axes are the channels it reads and gives.
KERNELS = {
    "Conv2D": (1, -2, -1),
    "Conv3D": (1, -2, -1),
    "DepthwiseConv2dNative": (1, -2, None),
    "Conv2DBackpropInput": (1, -1, -2),
    "Conv3DBackpropInputV2": (1, -1, -2),
    "MatMul": (1, -2, -1),
    "BatchMatMulV2": (1, -2, -1),
}
VECTOR = 8  # channels that a CPU's registers and int8 instructions, or a GPU's tensor cores, take at once
SHOWN = 20


def parameters(graph: Graph) -> dict[str, int]:
    """The floating-point constants of more than one value, which is what variables become; each once."""
    arrays = [graph.array(Tensor(name)) for name in _floats(graph)]
    return {"count": sum(array.size for array in arrays), "bytes": sum(array.nbytes for array in arrays)}


def sparsity(graph: Graph) -> dict[str, Any]:
    """Zeros among the kernels, and whether two of every four neighbours along the inputs are zero."""
    found: list[dict[str, Any]] = []
    for node, kernel, axis, _ in _kernels(graph):
        zeros = int(kernel.size - np.count_nonzero(kernel))
        found.append(
            {"node": node.name, "size": kernel.size, "zeros": zeros, "two_of_four": _two_of_four(kernel, axis)}
        )
    size, zeros = (sum(one[key] for one in found) for key in ("size", "zeros"))
    sparse = sorted((one for one in found if one["zeros"] >= one["size"] / 10), key=lambda one: -one["zeros"])
    two_of_four = sum(one["two_of_four"] for one in found)
    fraction = zeros / size if size else 0.0
    return {"zeros": zeros, "fraction": fraction, "two_of_four": two_of_four, "kernels": sparse[:SHOWN]}


def odd_channels(graph: Graph) -> list[dict[str, Any]]:
    """Kernels that read or give a number of channels that is no multiple of 8."""
    found = []
    for node, kernel, reads, gives in _kernels(graph):
        sizes = {"reads": kernel.shape[reads], "gives": kernel.shape[gives] if gives is not None else kernel.shape[-1]}
        if gives is None:
            sizes["gives"] *= kernel.shape[-2]
        if any(size % VECTOR for size in sizes.values()):
            found.append({"node": node.name, "op": node.op, **sizes})
    return found


def _floats(graph: Graph) -> Iterator[str]:
    import tensorflow as tf

    for name, node in graph.nodes.items():
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            shape = node.attr["value"].tensor.tensor_shape
            if tf.TensorShape(shape).num_elements() > 1:
                yield name


def _kernels(graph: Graph) -> Iterator[tuple[Node, NDArray[Any], int, int | None]]:
    for node in graph.nodes.values():
        if node.op in KERNELS and graph.is_constant(node.inputs[KERNELS[node.op][0]]):
            place, reads, gives = KERNELS[node.op]
            turned = any(node.attr[key].b for key in ("transpose_b", "adj_y") if key in node.attr)
            yield node, graph.array(node.inputs[place]), *((gives or -1, reads) if turned else (reads, gives))


def _two_of_four(kernel: NDArray[Any], axis: int) -> bool:
    rows = np.moveaxis(kernel, axis, -1)
    if rows.shape[-1] % 4:
        return False
    fours = rows.reshape(-1, 4)
    return bool(((fours != 0).sum(1) <= 2).all())
