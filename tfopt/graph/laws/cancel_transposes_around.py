"""Remove Transposes that undo each other around operations that work along any axis.

    Transpose(f(Transpose(x, p), Transpose(y, p), c), q) = f(x, y, Transpose(c, q))    if q undoes p

    before    x -> Transpose(0, 3, 1, 2) -> Relu -> Mean(axes 2, 3) -> Transpose(0, 2, 3, 1) -> y
    after     x -> Relu -> Mean(axes 1, 2) -> y

There may be several Transposes after f, and everything that reads an operation of f is in f or one of these. f
consists of elementwise operations, which do not depend on the place of an element, and of BiasAdd, ConcatV2, Pad,
PadV2, MirrorPad and reductions that keep the reduced axes, whose axis a is p(a) without the Transposes. A Mean or Sum
along an axis adds the same terms, in an order that the kernel chooses.

Requires: constant permutations that undo each other; constant axes; no output of the graph in between; constants
that are no larger than the data; biases along the last axis of x.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Graph, Maker, Node, Outcome, Tensor, WholeGraphLaw, attr
from tfopt.graph.laws.cancel_transposes import as_permutation
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY, attributes, identity, output_types

PADS = {"Pad", "PadV2", "MirrorPad"}
WITH_AXES = PADS | REDUCTIONS | {"ConcatV2"}
MOVED = UNARY | BINARY | WITH_AXES | {"AddN", "BiasAdd", "SelectV2"}


def run(graph: Graph) -> Iterator[Outcome]:
    refused: dict[str, str] = {}  # reason, by the name of each operation in a region
    for last in graph.of_op("Transpose"):
        if last.name not in graph.nodes or not graph.is_constant(last.inputs[1]):
            continue
        start = graph.nodes[last.inputs[0].node]
        if start.op not in MOVED:
            continue
        region = Region(_permutation(graph, last))
        reason = refused.get(start.name) or _grow(graph, region, start)
        if not reason and is_framed(graph):
            reason = "the graph has control flow of version 1"
        if reason:
            refused |= dict.fromkeys(region.inner, reason)
        else:
            _move(graph, region)
        yield last.name, reason


@dataclass
class Region:
    """Operations that are connected, between Transposes."""

    order: NDArray[np.int64]  # permutation of the Transposes after it
    inner: dict[str, Node] = field(default_factory=dict)  # the operations, by name
    # names of the Transposes before it, which undo the Transposes after it
    before: set[str] = field(default_factory=set)
    after: dict[str, None] = field(default_factory=dict)  # names of the Transposes after it


def _grow(graph: Graph, region: Region, start: Node) -> str:
    """Add all operations that are connected with one, and return why their Transposes do not cancel; empty if so."""
    pending = [start]
    while pending:
        node = pending.pop()
        if node.name in region.inner:
            continue
        region.inner[node.name] = node
        if reason := _refusal(graph, node, region.order):
            return reason
        for reader in graph.readers(node.name):
            if _is_transpose(graph, reader, region.order):
                region.after[reader.name] = None
            elif reader.op == "Transpose":
                return "the Transposes do not undo each other"
            else:
                pending.append(reader)
        for tensor in _data(node):
            if graph.is_constant(tensor):
                array = graph.array(tensor)
                if array.dtype.kind in "OSU" or array.ndim > len(region.order):
                    return "a constant has more axes than the data"
                if node.op in WITH_AXES and array.ndim < len(region.order):
                    return f"a constant of the {node.op} has fewer axes than the data"
            elif graph.nodes[tensor.node].op != "Transpose":
                pending.append(graph.nodes[tensor.node])
            elif _is_transpose(graph, graph.nodes[tensor.node], np.argsort(region.order)):
                region.before.add(tensor.node)
            else:
                return "the Transposes do not undo each other"
    return "" if region.before else "there is no Transpose before it"


def _refusal(graph: Graph, node: Node, order: NDArray[np.int64]) -> str | None:
    if node.op not in MOVED:
        return f"{node.op} is in between, before or after it"
    if graph.is_held(node):
        return "an operation in between is an output of the graph as well, fed, or has control edges"
    if node.op == "BiasAdd" and order[-1] != (1 if attr(node, "data_format") == "NCHW" else len(order) - 1):
        return "a bias is not along the last axis without the Transposes"
    if node.op in WITH_AXES and not graph.is_constant(node.inputs[len(_data(node))]):
        return f"the axes of the {node.op} are not constant"
    if node.op in REDUCTIONS and not attr(node, "keep_dims"):
        return f"the {node.op} in between removes axes"
    return None


def _is_transpose(graph: Graph, node: Node, order: NDArray[np.int64]) -> bool:
    is_one = node.op == "Transpose" and graph.is_constant(node.inputs[1])
    return is_one and np.array_equal(_permutation(graph, node), order)


def _data(node: Node) -> list[Tensor]:
    """Return the inputs that are between the Transposes; the others are a bias or axes."""
    if node.op == "ConcatV2":
        return node.inputs[:-1]
    return node.inputs[:1] if node.op in PADS | REDUCTIONS | {"BiasAdd"} else node.inputs


def _move(graph: Graph, region: Region) -> None:
    order = region.order
    for node in region.inner.values():
        is_bias = node.op == "BiasAdd"
        data = _data(node)
        inputs = [_before(graph, tensor, region, node) for tensor in data]
        others = list(node.inputs[len(data) :])
        if node.op in WITH_AXES:
            others[0] = _axes_before(graph, others[0], order, node)
        attributes_before = attributes("BiasAdd", node.attr, {"data_format": "NHWC"}) if is_bias else node.attr
        graph.replace(node, inputs=inputs + others, attr=attributes_before)
    for name in region.after:
        last = graph.nodes[name]
        graph.remove(name)
        if name in graph.fetched or last.controls or graph.waiting(name):
            graph.insert(identity(name, last.inputs[0], output_types(last)[0], last.controls, last.device))
        else:
            graph.redirect(Tensor(name), last.inputs[0])
    for name in region.before - graph.fetched - graph.fed:
        if not graph.readers(name) and not graph.waiting(name) and not graph.nodes[name].controls:
            graph.remove(name)


def _before(graph: Graph, tensor: Tensor, region: Region, reader: Node) -> Tensor:
    """Return the input of an operation as it is without the Transposes."""
    node = graph.nodes[tensor.node]
    if node.name in region.before:
        return node.inputs[0]
    if not graph.is_constant(tensor) or graph.array(tensor).ndim == 0:
        return tensor
    array = graph.array(tensor)
    array = array.reshape((1,) * (len(region.order) - array.ndim) + array.shape).transpose(region.order)
    return Maker(graph, reader, list(node.controls)).constant("transposed", array)


def _axes_before(graph: Graph, tensor: Tensor, order: NDArray[np.int64], reader: Node) -> Tensor:
    """Return the axes, or the widths of all axes, of an operation as they are without the Transposes."""
    array = graph.array(tensor)
    moved = array[order] if reader.op in PADS else np.argsort(order)[array % len(order)]
    return Maker(graph, reader, list(reader.controls)).constant("axes", moved.astype(array.dtype))


def _permutation(graph: Graph, node: Node) -> NDArray[np.int64]:
    return as_permutation(graph.array(node.inputs[1]))


LAW = WholeGraphLaw(
    run,
    changes_shapes=True,
    rounds=True,
    after={"cancel_transposes": "a pair without an operation in between needs no move"},
)
