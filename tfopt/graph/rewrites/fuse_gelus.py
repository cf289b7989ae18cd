"""Write the exact GELU in the form that TensorFlow and exporters recognize.

    0.5 x erfc(-c x) = 0.5 x (1 + erf(x / (1 / c))) = 0.5 x (erf(c x) + 1)    for c = 1 / sqrt(2)

    before    x -> Mul(0.5);  x -> Mul(-c) -> Erfc;  both -> Mul -> y
    after     x -> Mul(0.5);  x -> Mul(c) -> Erf -> AddV2(1);  both -> Mul -> y

TensorFlow 2.21 writes the first form, older ones the second. Of the last one, with a MatMul and BiasAdd before it,
TensorFlow with oneDNN makes a single operation; OpenVINO and ONNX Runtime find it, LiteRT the first one, too. Erf is
also faster than Erfc by itself. erfc is more precise where x is below -3, and the GELU close to 0: the difference is
within a rounding error of 1, times x.

Requires: floats, not of 64 bits in place of Erfc, since TensorFlow's Erf of an infinity is NaN there; both factors from
the same x; nothing else reads what is computed in between.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from tfopt.graph.control_flow_v1 import is_framed
from tfopt.graph.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Whole, attr

NAME = "fuse_gelus"
PRECISION = 1e-2  # of 1 / sqrt(2), which a graph in bfloat16 has rounded


class Gelu(NamedTuple):
    """The parts of a GELU.

    Attributes:
        data: The tensor x.
        scale: The number c, as the graph has it.
        removed: Names of the nodes that are not needed afterwards.
    """

    data: Tensor
    scale: float
    removed: list[str]


def run(graph: Graph, report: Report) -> int:
    """Rewrite every GELU of another form."""
    if not graph.of_op("Erf", "Erfc") or is_framed(graph):
        return 0
    fired = 0
    for root in graph.of_op("Mul"):
        gelu = next(_gelus(graph, root), None) if root.name in graph.nodes else None
        if gelu is None:
            continue
        if reason := _refusal(graph, root, gelu):
            report.refuse(NAME, root.name, reason)
            continue
        _replace(graph, root, gelu)
        report.fire(NAME, root.name)
        fired += 1
    return fired


def _gelus(graph: Graph, root: Node) -> Iterator[Gelu]:
    """Yield the GELU that ends at a product, if there is one of another form."""
    for tensor, other in (root.inputs, root.inputs[::-1]):
        product = graph.nodes[tensor.node]
        if product.op != "Mul":
            continue
        for half, data, normal in permutations((*product.inputs, other)):
            if _number(graph, half) == 0.5:
                yield from _with_data(graph, data, normal, product)


def _with_data(graph: Graph, data: Tensor, normal: Tensor, product: Node) -> Iterator[Gelu]:
    """Yield the GELU of a tensor and twice the normal distribution function of it."""
    node = graph.nodes[normal.node]
    removed = [product.name, node.name]
    if node.op in ("Add", "AddV2"):
        one, erf = node.inputs if graph.is_constant(node.inputs[0]) else node.inputs[::-1]
        node = graph.nodes[erf.node]
        if _number(graph, one) != 1 or node.op != "Erf":
            return
        removed.append(node.name)
    elif node.op != "Erfc":
        return
    scaled = graph.nodes[node.inputs[0].node]
    scale = _scale(graph, scaled, data)
    if scale is None or abs((scale if node.op == "Erf" else -scale) * np.sqrt(2) - 1) > PRECISION:
        return
    if node.op == "Erfc" or scaled.op == "RealDiv":
        yield Gelu(data, abs(scale), [*removed, scaled.name])


def _scale(graph: Graph, node: Node, data: Tensor) -> float | None:
    """Return the factor of x, if a node multiplies x by a number, or divides it."""
    if node.op not in ("Mul", "RealDiv"):
        return None
    for tensor, other in (node.inputs, node.inputs[::-1] if node.op == "Mul" else node.inputs):
        number = _number(graph, other)
        if tensor == data and number:
            return number if node.op == "Mul" else 1 / number
    return None


def _number(graph: Graph, tensor: Tensor) -> float | None:
    """Return the value of a constant that is one float."""
    if not graph.is_constant(tensor):
        return None
    array = graph.array(tensor)
    return float(array) if array.ndim == 0 and array.dtype.name in FLOATS else None


def _refusal(graph: Graph, root: Node, gelu: Gelu) -> str | None:
    from tensorflow import as_dtype

    if root.name in graph.fed:
        return "it is fed from outside"
    if as_dtype(attr(root, "T")).name == "float64" and any(graph.nodes[name].op == "Erfc" for name in gelu.removed):
        return "Erf of an infinity is NaN in 64 bits"
    inner = {root.name, *gelu.removed}
    for name in gelu.removed:
        node = graph.nodes[name]
        if name in graph.fetched | graph.fed or node.controls or graph.waiting(name):
            return "a part is an output of the graph as well, fed, or has control edges"
        if any(reader.name not in inner for reader in graph.readers(name)):
            return "something else reads a part"
    return None


def _replace(graph: Graph, root: Node, gelu: Gelu) -> None:
    make, like = Maker(graph, root, []), root
    from tensorflow import as_dtype

    dtype = as_dtype(attr(root, "T")).as_numpy_dtype
    scale, one, half = (
        make.constant(role, np.asarray(value, dtype)) for role, value in (("c", gelu.scale), ("one", 1), ("0.5", 0.5))
    )
    erf = make.node("Erf", make.node("Mul", gelu.data, scale, like=like), like=like)
    # Grappler sorts factors by name, and multiplies the first one by the number: LiteRT expects that this is x.
    factors = [
        make.node("Mul", gelu.data, half, like=like, role="half"),
        make.node("AddV2", erf, one, like=like, role="sum"),
    ]
    graph.remove(root.name)
    graph.insert(Node(root.name, "Mul", factors, root.controls, root.attr, root.device))
    for name in gelu.removed:
        graph.remove(name)


LAW = Whole(run, requires=("direct edges", "folded constants"))
