"""Replace operations that TensorFlow no longer runs in new graphs ("removed in version 9") by those that followed them.

TensorFlow runs such an operation only in a graph whose producer is older than the version of the removal. A SavedModel
that is loaded as functions, as TensorFlow 2 does it, loses the version of its producer.

Source: the field ``deprecation`` of ``tensorflow/core/framework/op_def.proto``; the documentation of each operation.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attribute, attributes, definition

# Operations with another name, and the same inputs and attributes.
RENAMED = {f"Batch{name}": name for name in ("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "Cholesky", "Svd")}
RENAMED |= {f"BatchMatrix{name}": f"Matrix{name}" for name in ("Inverse", "Solve", "SolveLs", "TriangularSolve")}
RENAMED |= {
    f"BatchMatrix{name}": f"Matrix{name}" for name in ("Determinant", "BandPart", "SetDiag", "Diag", "DiagPart")
}
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
            rewrite(graph, node)
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


def _batch_norm(graph: Graph, node: Node) -> None:
    """Write (x - mean) * (gamma / sqrt(variance + epsilon)) + beta.

    Not as a FusedBatchNorm, which fails on an empty batch.
    """
    data, mean, variance, beta, gamma = node.inputs
    kind, scaled = attribute(node, "T").type, attribute(node, "scale_after_normalization").b
    epsilon = attribute(node, "variance_epsilon").f
    small = _constant(graph, node, "epsilon", np.asarray(epsilon, _dtype(kind)))
    root = _add(graph, node, "rsqrt", "Rsqrt", [_add(graph, node, "sum", "AddV2", [variance, small], T=kind)], T=kind)
    scale = _add(graph, node, "scale", "Mul", [root, gamma], T=kind) if scaled else root
    centered = _add(graph, node, "centered", "Sub", [data, mean], T=kind)
    _replace(graph, node, "AddV2", [_add(graph, node, "scaled", "Mul", [centered, scale], T=kind), beta], T=kind)


def _top_k(graph: Graph, node: Node) -> None:
    count = _constant(graph, node, "k", np.asarray(attribute(node, "k").i, np.int32))
    _replace(graph, node, "TopKV2", [*node.inputs, count])


def _adjust_contrast(graph: Graph, node: Node) -> None:
    """Write AdjustContrastv2 in float32, and clip its result to the limits."""
    images, factor, low, high = node.inputs
    if (kind := attribute(node, "T").type) != 1:
        images = _add(graph, node, "images", "Cast", [images], SrcT=kind, DstT=1)
    adjusted = _add(graph, node, "adjusted", "AdjustContrastv2", [images, factor])
    limited = _add(graph, node, "limited", "Minimum", [adjusted, high], T=1)
    _replace(graph, node, "Maximum", [limited, low], T=1)


def _pack(graph: Graph, node: Node) -> None:
    _replace(graph, node, "TensorArrayGatherV3", [node.inputs[0], _all(graph, node), node.inputs[1]])


def _unpack(graph: Graph, node: Node) -> None:
    handle, value, flow = node.inputs
    kind = attribute(node, "T").type
    shape = _add(graph, node, "shape", "Shape", [value], T=kind)
    zero, one = (_constant(graph, node, "index", np.asarray([number], np.int32)) for number in (0, 1))
    ends = {"T": 3, "Index": 3, "shrink_axis_mask": 1}
    count = _add(graph, node, "count", "StridedSlice", [shape, zero, one, one], **ends)
    _replace(graph, node, "TensorArrayScatterV3", [handle, _range(graph, node, count), value, flow])


def _all(graph: Graph, node: Node) -> Tensor:
    return _range(graph, node, _add(graph, node, "size", "TensorArraySizeV3", node.inputs))


def _range(graph: Graph, node: Node, count: Tensor) -> Tensor:
    start, step = (_constant(graph, node, "bound", np.asarray(number, np.int32)) for number in (0, 1))
    return _add(graph, node, "range", "Range", [start, count, step], Tidx=3)


REWRITES: dict[str, Callable[[Graph, Node], None]] = {
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
    graph.remove(node.name)
    graph.insert(Node(node.name, op, list(inputs), node.controls, attributes(op, node.attr, changed), node.device))


def _add(graph: Graph, node: Node, name: str, op: str, inputs: list[Tensor], **changed: Any) -> Tensor:
    name = graph.fresh(f"{node.name}/{name}")
    graph.insert(Node(name, op, list(inputs), [], attributes(op, {}, changed), node.device))
    return Tensor(name)


def _constant(graph: Graph, node: Node, name: str, value: Any) -> Tensor:
    import tensorflow as tf

    name = graph.fresh(f"{node.name}/{name}")
    proto = tf.make_tensor_proto(value)
    attr = {"dtype": tf.compat.v1.AttrValue(type=proto.dtype), "value": tf.compat.v1.AttrValue(tensor=proto)}
    controls = [node.inputs[0].node] if is_framed(graph) else []  # a loop of version 1 needs constants of its own
    graph.insert(Node(name, "Const", [], controls, attr, node.device))
    return Tensor(name)


def _dtype(kind: int) -> Any:
    import tensorflow as tf

    return tf.as_dtype(kind).name
