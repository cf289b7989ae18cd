"""Remove Transposes that undo each other around operations that work along any axis.

    Transpose(f(Transpose(x, p), Transpose(y, p), c), q) = f(x, y, Transpose(c, q))    if q undoes p

    before    x -> Transpose(0, 3, 1, 2) -> Relu -> Mean(axes 2, 3) -> Transpose(0, 2, 3, 1) -> y
    after     x -> Relu -> Mean(axes 1, 2) -> y

f consists of elementwise operations, which do not depend on the place of an element, and of BiasAdd, ConcatV2, Pad,
PadV2, MirrorPad and reductions that keep the reduced axes, whose axis a is p(a) without the Transposes. A Mean or Sum
along an axis adds the same terms, in an order that the kernel chooses.

Requires: constant permutations that undo each other; constant axes; no other reader of a node in between; constants
that are no larger than the data; biases along the last axis of x.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY, attributes, identity, output_types
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Whole, attr

NAME = "cancel_transposes_around"
PADS = {"Pad", "PadV2", "MirrorPad"}
WITH_AXES = PADS | REDUCTIONS | {"ConcatV2"}
MOVED = UNARY | BINARY | WITH_AXES | {"AddN", "BiasAdd", "SelectV2"}


def run(graph: Graph, report: Report) -> int:
    """Remove the Transposes around every such function."""
    fired = 0
    for last in graph.of_op("Transpose"):
        if last.name not in graph.nodes or not graph.is_constant(last.inputs[1]):
            continue
        if graph.nodes[last.inputs[0].node].op not in MOVED:
            continue
        inner = _inner(graph, last)
        if not isinstance(inner, str) and is_framed(graph):
            inner = "the graph has control flow of version 1"
        if isinstance(inner, str):
            report.refuse(NAME, last.name, inner)
            continue
        _move(graph, last, inner)
        report.fire(NAME, last.name)
        fired += 1
    if fired:
        graph.forget_shapes()  # the operations in between have other shapes now
    return fired


def _inner(graph: Graph, last: Node) -> list[Node] | str:
    """Return the operations between the Transposes, or why these do not cancel."""
    order = _permutation(graph, last)
    inner: list[Node] = []
    transposed, pending = 0, [last.inputs[0]]
    while pending:
        tensor = pending.pop()
        node = graph.nodes[tensor.node]
        if node.op == "Transpose" and graph.is_constant(node.inputs[1]):
            first = _permutation(graph, node)
            if len(first) != len(order) or (first[order] != np.arange(len(order))).any():
                return "the Transposes do not undo each other"
            transposed += 1
        elif graph.is_constant(tensor):
            array = graph.array(tensor)
            if array.dtype.kind in "OSU" or array.ndim > len(order):
                return "a constant has more axes than the data"
        elif node.op not in MOVED:
            return f"{node.op} is in between or before it"
        elif node.name in graph.fetched | graph.fed or graph.waiting(node.name) or node.controls:
            return "an operation in between is an output of the graph as well, fed, or has control edges"
        elif graph.uses(node.name) != 1:
            return f"an operation in between has {graph.uses(node.name)} consumers"
        elif node.op == "BiasAdd" and not _is_along_last(node, order):
            return "a bias is not along the last axis without the Transposes"
        elif node.op in WITH_AXES and not graph.is_constant(node.inputs[len(_data(node))]):
            return f"the axes of the {node.op} are not constant"
        elif node.op in REDUCTIONS and not attr(node, "keep_dims"):
            return f"the {node.op} in between removes axes"
        else:
            inner.append(node)
            pending += _data(node)
    return inner if transposed else "there is no Transpose before it"


def _data(node: Node) -> list[Tensor]:
    """Return the inputs that are between the Transposes; the others are a bias or axes."""
    if node.op == "ConcatV2":
        return node.inputs[:-1]
    return node.inputs[:1] if node.op in PADS | REDUCTIONS | {"BiasAdd"} else node.inputs


def _is_along_last(bias: Node, order: NDArray[np.int64]) -> bool:
    """Return whether a bias between the Transposes is along the last axis of what is before and after them."""
    axis = 1 if attr(bias, "data_format") == "NCHW" else len(order) - 1
    return bool(order[-1] == axis)


def _move(graph: Graph, last: Node, inner: list[Node]) -> None:
    order = _permutation(graph, last)
    top = last.inputs[0]
    before = {tensor.node for node in inner for tensor in node.inputs if graph.nodes[tensor.node].op == "Transpose"}
    for node in inner:
        is_bias = node.op == "BiasAdd"
        data = _data(node)
        inputs = [_before(graph, tensor, order, node) for tensor in data]
        others = list(node.inputs[len(data) :])
        if node.op in WITH_AXES:
            others[0] = _axes_before(graph, others[0], order, node)
        attributes_before = attributes("BiasAdd", node.attr, {"data_format": "NHWC"}) if is_bias else node.attr
        graph.remove(node.name)
        inputs += others
        graph.insert(Node(node.name, node.op, inputs, node.controls, attributes_before, node.device))
    graph.remove(last.name)
    if last.name in graph.fetched or last.controls or graph.waiting(last.name):
        graph.insert(identity(last.name, top, output_types(last)[0], last.controls, last.device))
    else:
        graph.redirect(Tensor(last.name), top)
    for name in before - graph.fetched - graph.fed:
        if not graph.readers(name) and not graph.waiting(name) and not graph.nodes[name].controls:
            graph.remove(name)


def _before(graph: Graph, tensor: Tensor, order: NDArray[np.int64], reader: Node) -> Tensor:
    """Return the input of an operation as it is without the Transposes."""
    node = graph.nodes[tensor.node]
    if node.op == "Transpose" and graph.is_constant(node.inputs[1]):
        return node.inputs[0]
    if not graph.is_constant(tensor) or graph.array(tensor).ndim == 0:
        return tensor
    array = graph.array(tensor)
    array = array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(order)
    return Maker(graph, reader, list(node.controls)).constant("transposed", array)


def _axes_before(graph: Graph, tensor: Tensor, order: NDArray[np.int64], reader: Node) -> Tensor:
    """Return the axes, or the widths of all axes, of an operation as they are without the Transposes."""
    array = graph.array(tensor)
    moved = array[order] if reader.op in PADS else np.argsort(order)[array % len(order)]
    return Maker(graph, reader, list(reader.controls)).constant("axes", moved.astype(array.dtype))


def _permutation(graph: Graph, node: Node) -> NDArray[np.int64]:
    order = graph.array(node.inputs[1]).astype(np.int64)
    return order % max(len(order), 1)


LAW = Whole(run, requires=("direct edges", "folded constants"))
