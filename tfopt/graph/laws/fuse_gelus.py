"""Write a GELU in the form for which TensorFlow with oneDNN has a kernel.

    0.5 x erfc(-c x) = 0.5 x (1 + erf(x / (1 / c))) = 0.5 x (erf(c x) + 1)    for c = 1 / sqrt(2)

    before    x -> Mul(0.5);  x -> Mul(-c) -> Erfc;  both -> Mul -> y
    after     x -> Mul(0.5);  x -> Mul(c) -> Erf -> AddV2(1);  both -> Mul -> y

    0.5 x (1 + tanh(d (x + e x^3))) = 0.5 (tanh(d (x + (e x) x^2)) + 1) x

    before    x -> Pow(3) -> Mul(e) -> AddV2(x) -> Mul(d) -> Tanh -> AddV2(1);  x -> Mul(0.5);  both -> Mul -> y
    after     x -> Mul(e), Square -> Mul -> AddV2(x) -> Mul(d) -> Tanh -> AddV2(1) -> Mul(0.5);  x -> both -> Mul -> y

TensorFlow 2.21 writes the exact GELU with Erfc, older versions with Erf of a quotient. Of the forms after it, with a
MatMul and BiasAdd before it, TensorFlow with oneDNN makes a single operation; Erf is also faster than Erfc by itself.
erfc is more precise where x is below -3, and the GELU close to 0: the difference is within a rounding error of 1, times
x. docs/grappler.md says which exporters find each form.

Grappler runs before TensorFlow looks for the forms. It sorts the factors of a product by the names of their nodes, and
a number goes to the first one, so that names decide on the form: they are chosen accordingly.

Requires: floats, not of 64 bits in place of Erfc, since TensorFlow's Erf of an infinity is NaN there; both factors from
the same x; nothing else reads what is computed in between.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "fuse_gelus"
# Of the numbers. TensorFlow accepts 0.01, and computes with its own.
PRECISION = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-5, "float64": 1e-5}
TANH = (np.sqrt(2 / np.pi), 0.044715)  # d and e


class Gelu(NamedTuple):
    """The parts of a GELU.

    Attributes:
        data: The tensor x.
        scale: The number c, or d, as the graph has it.
        removed: Names of the nodes that are not needed afterwards.
        cubic: The number e; None for the exact GELU.
    """

    data: Tensor
    scale: float
    removed: list[str]
    cubic: float | None = None


def run(graph: Graph, report: Report) -> int:
    """Rewrite every GELU of another form."""
    if not graph.of_op("Erf", "Erfc", "Tanh") or is_framed(graph):
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
        removed.append(node.name)
        if _number(graph, one) == 1 and node.op == "Tanh":
            yield from _with_tanh(graph, data, node.inputs[0], removed)
        if _number(graph, one) != 1 or node.op != "Erf":
            return
    elif node.op != "Erfc":
        return
    scaled = graph.nodes[node.inputs[0].node]
    scale = _scale(graph, scaled, data)
    if scale is None or not _is_close(graph, normal, scale if node.op == "Erf" else -scale, 2**-0.5):
        return
    if node.op == "Erfc" or scaled.op == "RealDiv":
        yield Gelu(data, abs(scale), [*removed, scaled.name])


def _with_tanh(graph: Graph, data: Tensor, argument: Tensor, removed: list[str]) -> Iterator[Gelu]:
    """Yield the GELU of a tensor with the hyperbolic tangent of another one."""
    for total, scale in _pairs(graph, argument, "Mul"):
        for linear, term in _pairs(graph, total, "AddV2"):
            for power, cubic in _pairs(graph, term, "Mul"):
                cube = graph.nodes[power.node]
                if linear != data or cube.op != "Pow" or cube.inputs[0] != data or _number(graph, cube.inputs[1]) != 3:
                    continue
                numbers = _number(graph, scale) or 0.0, _number(graph, cubic) or 0.0
                if all(_is_close(graph, argument, *pair) for pair in zip(numbers, TANH, strict=True)):
                    names = [argument.node, total.node, term.node, power.node]
                    yield Gelu(data, numbers[0], [*removed, *names], numbers[1])


def _is_close(graph: Graph, tensor: Tensor, number: float, expected: float) -> bool:
    """Return whether a number is another one, as far as the dtype of a tensor allows."""
    from tensorflow import as_dtype

    dtype = as_dtype(attr(graph.nodes[tensor.node], "T")).name
    return abs(number / expected - 1) <= PRECISION.get(dtype, 0)


def _pairs(graph: Graph, tensor: Tensor, op: str) -> list[tuple[Tensor, Tensor]]:
    """Return the operands of an operation in both orders; nothing if it is another operation."""
    node = graph.nodes[tensor.node]
    return [(node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])] if node.op == op else []


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
    make = Maker(graph, root, [])
    factors = _exact(make, gelu) if gelu.cubic is None else _approximate(make, gelu, gelu.cubic)
    graph.remove(root.name)
    graph.insert(Node(root.name, "Mul", factors, root.controls, root.attr, root.device))
    for name in gelu.removed:
        graph.remove(name)


def _exact(make: Maker, gelu: Gelu) -> list[Tensor]:
    """Add the factors of the exact GELU: x / 2 comes first, by name."""
    erf = make.node("Erf", _times(make, gelu.data, gelu.scale), like=make.root)
    return [_times(make, gelu.data, 0.5, "half"), _plus_one(make, erf)]


def _approximate(make: Maker, gelu: Gelu, cubic: float) -> list[Tensor]:
    """Add the factors of the GELU with tanh: by name, e x comes before x^2, and half the sum before x."""
    like, data = make.root, gelu.data
    square = make.node("Square", data, like=like, role="square")
    cube = make.node("Mul", _times(make, data, cubic, "part"), square, like=like)
    tanh = make.node("Tanh", _times(make, make.node("AddV2", data, cube, like=like), gelu.scale), like=like)
    half = _times(make, _plus_one(make, tanh), 0.5)
    if len(data.node) > 1:
        name = make.graph.fresh(f"{data.node[:-1]}-half")
        make.graph.rename(half.node, name)
        half = Tensor(name)
    return [half, data]


def _plus_one(make: Maker, tensor: Tensor) -> Tensor:
    return make.node("AddV2", tensor, _constant(make, 1), like=make.root, role="sum")


def _times(make: Maker, tensor: Tensor, number: float, role: str = "") -> Tensor:
    return make.node("Mul", tensor, _constant(make, number), like=make.root, role=role)


def _constant(make: Maker, number: float) -> Tensor:
    from tensorflow import as_dtype

    return make.constant("constant", np.asarray(number, as_dtype(attr(make.root, "T")).as_numpy_dtype))


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    rounds=True,
    after={"fold_signs": "the sign is in the constant then"},
)
