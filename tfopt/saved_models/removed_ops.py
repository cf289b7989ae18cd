"""Replace operations that TensorFlow no longer runs in new graphs ("removed in version 9") by those that followed them.

TensorFlow runs such an operation only in a graph whose producer is older than the version of the removal. A SavedModel
that is loaded as functions, as TensorFlow 2 does it, loses the version of its producer.

Source: the field ``deprecation`` of ``tensorflow/core/framework/op_def.proto``; the documentation of each operation.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.graph.law import Maker, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attributes, definition
from tfopt.graph_def import FLOAT, INT32

# Operations with another name, and the same inputs and attributes.
RENAMED = {f"Batch{name}": name for name in ("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "Cholesky", "Svd")}
MATRIX = ("Inverse", "Solve", "SolveLs", "TriangularSolve", "Determinant", "BandPart", "SetDiag", "Diag", "DiagPart")
RENAMED |= {f"BatchMatrix{name}": f"Matrix{name}" for name in MATRIX}
RENAMED |= {"BatchSelfAdjointEigV2": "SelfAdjointEigV2", "PlaceholderV2": "Placeholder"}
ARRAYS = re.compile(r"^TensorArray(Write|Read|Gather|Scatter|Concat|Split|Size|Close)?(V2)?$")
PASSED_ON = {"Enter": "Enter", "RefEnter": "Enter", "Switch": "Switch", "RefSwitch": "Switch", "Identity": "Identity"}
PASSED_ON |= {"RefIdentity": "Identity"}


def replace_removed(graph_def: Any) -> Any:
    """Return a GraphDef without the removed operations that have a successor."""
    if not has_successors(graph_def):
        return graph_def
    graph = Graph.of(graph_def)
    for node in graph.of_op(*RENAMED):
        _replace(graph, node, RENAMED[node.op], node.inputs)
    for op, rewrite in REWRITES.items():
        for node in graph.of_op(op):
            # a loop of version 1 needs constants of its own
            rewrite(Maker(graph, node, [node.inputs[0].node] if is_framed(graph) else []), node)
    for node in list(graph.nodes.values()):
        if ARRAYS.match(node.op):
            _replace(graph, node, f"{node.op.removesuffix('V2')}V3", node.inputs)
            if node.op in ("TensorArray", "TensorArrayV2"):
                _pass_resource(graph, node.name)
    return graph.to_graph_def()


def has_successors(graph_def: Any) -> bool:
    """Return whether a GraphDef has removed operations that `replace_removed` replaces."""
    old = {*RENAMED, *REWRITES}
    return any(node.op in old or ARRAYS.match(node.op) for node in graph_def.node)


def removed_in(op: str) -> int:
    """Return the version of graphs since which TensorFlow refuses an operation; 0 if it runs it."""
    op_def = definition(op)
    return int(op_def.deprecation.version) if op_def is not None else 0


def _batch_norm(make: Maker, node: Node) -> None:
    """Write (x - mean) * (gamma / sqrt(variance + epsilon)) + beta.

    Not as a FusedBatchNorm, which fails on an empty batch.
    """
    from tensorflow import as_dtype

    data, mean, variance, beta, gamma = node.inputs
    dtype = as_dtype(attr(node, "T")).as_numpy_dtype
    epsilon = make.constant("epsilon", np.asarray(attr(node, "variance_epsilon"), dtype))
    root = make.node("Rsqrt", make.node("AddV2", variance, epsilon, like=node), like=node)
    scale = make.node("Mul", root, gamma, like=node) if attr(node, "scale_after_normalization") else root
    centered = make.node("Sub", data, mean, like=node)
    _replace(make.graph, node, "AddV2", [make.node("Mul", centered, scale, like=node), beta])


def _top_k(make: Maker, node: Node) -> None:
    _replace(make.graph, node, "TopKV2", [*node.inputs, make.constant("k", np.asarray(attr(node, "k"), np.int32))])


def _adjust_contrast(make: Maker, node: Node) -> None:
    """Write AdjustContrastv2 in float32, and clip its result to the limits."""
    images, factor, low, high = node.inputs
    if (kind := attr(node, "T")) != FLOAT:
        images = make.node("Cast", images, like=node, SrcT=kind, DstT=FLOAT)
    adjusted = make.node("AdjustContrastv2", images, factor, like=node, T=FLOAT)
    _replace(make.graph, node, "Maximum", [make.node("Minimum", adjusted, high, like=node, T=FLOAT), low], T=FLOAT)


def _pack(make: Maker, node: Node) -> None:
    indices = _range(make, node, make.node("TensorArraySizeV3", *node.inputs, like=node))
    _replace(make.graph, node, "TensorArrayGatherV3", [node.inputs[0], indices, node.inputs[1]])


def _unpack(make: Maker, node: Node) -> None:
    handle, value, flow = node.inputs
    shape = make.node("Shape", value, like=node)
    zero, one = (make.constant("index", np.asarray([number], np.int32)) for number in (0, 1))
    ends = (shape, zero, one, one)
    count = make.node("StridedSlice", *ends, like=node, T=INT32, Index=INT32, shrink_axis_mask=1)
    _replace(make.graph, node, "TensorArrayScatterV3", [handle, _range(make, node, count), value, flow])


def _range(make: Maker, node: Node, count: Tensor) -> Tensor:
    start, step = (make.constant("bound", np.asarray(number, np.int32)) for number in (0, 1))
    return make.node("Range", start, count, step, like=node, Tidx=INT32)


REWRITES: dict[str, Callable[[Maker, Node], None]] = {
    "BatchNormWithGlobalNormalization": _batch_norm,
    "TopK": _top_k,
    "AdjustContrast": _adjust_contrast,
    "TensorArrayPack": _pack,
    "TensorArrayUnpack": _unpack,
}


def _pass_resource(graph: Graph, name: str) -> None:
    """Give the operations that pass on the handle of a TensorArray the type of a resource; it was a string."""
    for reader in graph.readers(name):
        if reader.op in PASSED_ON and reader.inputs[0].node == name and (name, 0) in reader.inputs:
            _replace(graph, reader, PASSED_ON[reader.op], reader.inputs, T=20)
            _pass_resource(graph, reader.name)


def _replace(graph: Graph, node: Node, op: str, inputs: list[Tensor], **changed: Any) -> None:
    graph.replace(node, op=op, inputs=list(inputs), attr=attributes(op, node.attr, changed))
