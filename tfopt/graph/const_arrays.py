"""Convert between the tensors of Const nodes and NumPy arrays, faster than TensorFlow for common dtypes.

Weights are large constants. TensorFlow copies them many times, so here are copies of GraphDefs without their values.
"""

import math
from collections.abc import Callable, Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph_def import GraphDef, NodeDef, nodes, reach, readers, without_nodes

ALIGNMENT = 64  # bytes, of TensorFlow's tensors
LARGE_BYTES = 64 << 10  # of a constant; the values of smaller ones may determine shapes, and take no time
RAW_KINDS = "fiu"  # NumPy dtype kinds whose bytes a TensorProto stores unchanged
# Of these operations, Grappler's constant folding changes none whose other input is not constant. It moves factors into
# the weights of convolutions.
UNFOLDED = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "GatherV2"}
WEIGHT = "_tfopt_weight"  # attribute of a constant without its value: the name of the one that has it


def array_of(tensor: Any) -> NDArray[Any]:
    """Return the array that a TensorProto contains."""
    from tensorflow import as_dtype, make_ndarray

    content = tensor.tensor_content  # a copy
    dtype = np.dtype(as_dtype(tensor.dtype).as_numpy_dtype)
    if not content or dtype.kind not in RAW_KINDS:
        return np.asarray(make_ndarray(tensor))
    aligned = _aligned(len(content))
    aligned[:] = np.frombuffer(content, np.uint8)
    array: NDArray[Any] = aligned.view(dtype).reshape([size.size for size in tensor.tensor_shape.dim])
    return array


def _aligned(size: int) -> NDArray[np.uint8]:
    """Return an array of bytes at an address from which TensorFlow reads a fed array without a copy."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def proto_of(array: NDArray[Any]) -> Any:
    """Return the TensorProto of an array: the same bytes as ``make_tensor_proto``, in a ninth of the time."""
    from tensorflow import as_dtype, make_tensor_proto
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    if array.dtype.kind not in RAW_KINDS or array.size < 2:
        return make_tensor_proto(array)
    proto = TensorProto(dtype=as_dtype(array.dtype).as_datatype_enum, tensor_content=array.tobytes())
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def feed_weights(graph_def: GraphDef) -> tuple[GraphDef, dict[str, NDArray[Any]]]:
    """Return a copy of a GraphDef whose weights are placeholders, and their values by tensor (``name:0``).

    A session with the copy reads the values where they are. A graph with constants is copied when it is imported, when
    it is sent to the session, and when the session runs it.
    """
    copied, weights = _without_values(graph_def)
    for copy, tensor in weights:
        copy.op = "Placeholder"
        copy.attr["shape"].shape.CopyFrom(tensor.tensor_shape)
    return copied, {f"{copy.name}:0": array_of(tensor) for copy, tensor in weights}


def zero_weights(graph_def: GraphDef) -> GraphDef:
    """Return a copy of a GraphDef whose weights are zeros, of the same dtypes and shapes, which take no memory.

    `restore_weights` gives them their values.
    """
    copied, weights = _without_values(graph_def)
    for copy, tensor in weights:
        copy.op = "Const"
        copy.attr["value"].tensor.dtype = tensor.dtype
        copy.attr["value"].tensor.tensor_shape.CopyFrom(tensor.tensor_shape)
        copy.attr[WEIGHT].s = copy.name.encode()
    return copied


def transform(graph_def: GraphDef, function: Callable[[GraphDef], GraphDef]) -> GraphDef:
    """Return the result of a function that changes a GraphDef without reading its weights, which it does not get.

    TensorFlow's C++ code gets and returns graphs as serialized copies.
    """
    changed = function(zero_weights(graph_def))
    restore_weights(changed, graph_def)
    return changed


def fold_constants(graph_def: GraphDef, function: Callable[[GraphDef], GraphDef]) -> GraphDef:
    """Return the result of a function that folds constants, which gets placeholders for weights that it cannot fold.

    These are the weights that are only read by an operation of `UNFOLDED` whose other input is not constant.
    """
    copied, weights = _without_values(graph_def, _unfolded(graph_def))
    for copy, tensor in weights:
        copy.op = "Placeholder"
        copy.attr["shape"].shape.CopyFrom(tensor.tensor_shape)
        copy.attr[WEIGHT].s = copy.name.encode()
    changed = function(copied)
    restore_weights(changed, graph_def)
    return changed


def restore_weights(graph_def: GraphDef, original: GraphDef) -> None:
    """Give all nodes with the mark `WEIGHT` the values of the constants that they stand for."""
    tensors = {node.name: node.attr["value"].tensor for node in original.node if node.op == "Const"}
    for node in nodes(graph_def):
        if WEIGHT in node.attr:
            tensor = tensors[node.attr.pop(WEIGHT).s.decode()]
            node.op = "Const"
            node.attr.pop("shape", None)
            node.attr["value"].tensor.CopyFrom(tensor)


def _unfolded(graph_def: GraphDef) -> set[str]:
    """Return the names of the weights that are only read by `UNFOLDED` operations, directly or as an Identity."""
    reading = readers(graph_def, controls=False)
    ops = {node.name: node.op for node in graph_def.node}
    fed = [name for name, op in ops.items() if op == "Placeholder"]
    constant = set(ops) - reach(fed, lambda name: reading.get(name, ()))

    def is_unfolded(name: str) -> bool:
        return all(
            is_unfolded(reader) if ops[reader] == "Identity" else ops[reader] in UNFOLDED and reader not in constant
            for reader in reading.get(name, ())
        )

    return {node.name for node in graph_def.node if _is_weight(node) and is_unfolded(node.name)}


def _without_values(
    graph_def: GraphDef, names: Container[str] | None = None
) -> tuple[GraphDef, list[tuple[NodeDef, Any]]]:
    """Return a copy in which weights have no operation and no value, and these nodes with their TensorProtos.

    With ``names``, only those weights.
    """
    copied, weights = without_nodes(graph_def), []
    for node in graph_def.node:
        copy = copied.node.add()
        if _is_weight(node) and (names is None or node.name in names):
            copy.name, copy.device = node.name, node.device
            copy.attr["dtype"].type = node.attr["dtype"].type
            weights.append((copy, node.attr["value"].tensor))
        else:
            copy.CopyFrom(node)
    return copied, weights


def _is_weight(node: Any) -> bool:
    """Return True for a large constant of floats or 8-bit levels; control inputs may place a constant into a loop."""
    from tensorflow import as_dtype

    if node.op != "Const" or node.input:
        return False
    tensor = node.attr["value"].tensor
    dtype = as_dtype(tensor.dtype)
    size = dtype.size * math.prod(dim.size for dim in tensor.tensor_shape.dim)
    return bool((dtype.is_floating or dtype.name == "int8") and size >= LARGE_BYTES)
