"""Compute a layer normalization from the centered input.

    x s + (b - m s) = (x - m) r g + b    for m = mean(x), r = 1 / sqrt(mean((x - m)^2) + epsilon), s = r g

    before    x, s -> Mul;  m -> Neg, s -> Mul -> AddV2(b);  both -> AddV2 -> y
    after     x, m -> Sub -> Mul(r) -> Mul(g) -> AddV2(b) -> y;  Sub -> Square -> Mean -> AddV2, Rsqrt -> r

Keras 3 and tf_keras multiply the gain g into r first, so that s and m s are as large as x. Afterwards, one pass over
memory less is needed, and one product less in which both sides are broadcast.

With oneDNN, TensorFlow has a kernel for the form with ``b - m s``, but for a single record it takes several times as
long as the operations (docs/benchmarks.md).

Requires: means along the last axis, with ``keep_dims``; constants g and b; g is one number for each element along that
axis; nothing else reads what is computed in between.
"""

from typing import NamedTuple

import numpy as np

from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "fuse_layer_norms"
SUMS = ("Add", "AddV2")


class Norm(NamedTuple):
    """The parts of a layer normalization.

    Attributes:
        data: The tensor x.
        mean: Its mean.
        gain: The constant g.
        bias: The constant b; None if there is none.
        rsqrt: The node of r.
        epsilon: The sum with epsilon before it.
        variance: The mean of squares before that.
        removed: Names of the nodes that are not needed afterwards.
    """

    data: Tensor
    mean: Tensor
    gain: Tensor
    bias: Tensor | None
    rsqrt: Node
    epsilon: Node
    variance: Node
    removed: list[str]


def run(graph: Graph, report: Report) -> int:
    """Rewrite every layer normalization."""
    if not graph.of_op("Rsqrt") or is_framed(graph):
        return 0
    fired = 0
    for root in graph.of_op(*SUMS):
        norm = _norm(graph, root)
        if norm is None:
            continue
        if reason := _refusal(graph, root, norm):
            report.refuse(NAME, root.name, reason)
            continue
        _replace(graph, root, norm)
        report.fire(NAME, root.name)
        fired += 1
    return fired


def _norm(graph: Graph, root: Node) -> Norm | None:
    """Return the parts of the layer normalization that ends at a sum; None if it is none."""
    for scaled, shift in (root.inputs, root.inputs[::-1]):
        for data, gained in _factors(graph, scaled):
            moments = _moments(graph, data, gained)
            if moments is None:
                continue
            mean, gain, nodes = moments
            shifted = _shift(graph, shift, mean, gained)
            if shifted is not None:
                bias, between = shifted
                rsqrt, epsilon, variance, *_ = nodes
                removed = [scaled.node, gained.node, *between, *(node.name for node in nodes)]
                return Norm(data, mean, gain, bias, rsqrt, epsilon, variance, list(dict.fromkeys(removed)))
    return None


def _factors(graph: Graph, tensor: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the factors of a product, in both orders."""
    node = graph.nodes[tensor.node]
    return [(node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])] if node.op == "Mul" else []


def _moments(graph: Graph, data: Tensor, gained: Tensor) -> tuple[Tensor, Tensor, list[Node]] | None:
    """Return the mean and gain, and the nodes from r to the squares, of a tensor that may be s = r g."""
    for rooted, gain in _factors(graph, gained):
        nodes = _chain(graph, rooted, ("Rsqrt",), SUMS, ("Mean",), ("SquaredDifference", "Square"))
        if nodes is None or not graph.is_constant(gain) or not graph.is_constant(nodes[1].inputs[1]):
            continue
        squares = nodes[3]
        if squares.op == "Square":
            squares = graph.nodes[squares.inputs[0].node]
            nodes.append(squares)
        if squares.op not in ("SquaredDifference", "Sub") or squares.inputs[0] != data:
            continue
        mean = graph.nodes[squares.inputs[1].node]
        if mean.op == "Mean" and mean.inputs[0] == data:
            return Tensor(mean.name), gain, nodes
    return None


def _chain(graph: Graph, tensor: Tensor, *ops: tuple[str, ...]) -> list[Node] | None:
    """Return nodes with these operations, each the first input of the one before it."""
    nodes = []
    for names in ops:
        node = graph.nodes[tensor.node]
        if node.op not in names:
            return None
        nodes.append(node)
        tensor = node.inputs[0]
    return nodes


def _shift(graph: Graph, tensor: Tensor, mean: Tensor, gained: Tensor) -> tuple[Tensor | None, list[str]] | None:
    """Return b, or None, and the nodes of b - m s, or of -m s."""
    node = graph.nodes[tensor.node]
    if node.op == "Sub" and graph.is_constant(node.inputs[0]):
        product = graph.nodes[node.inputs[1].node]
        is_product = product.op == "Mul" and sorted(product.inputs) == sorted([mean, gained])
        return (node.inputs[0], [node.name, product.name]) if is_product else None
    if node.op in SUMS:
        for bias, negated in (node.inputs, node.inputs[::-1]):
            between = _negated_product(graph, negated, mean, gained) if graph.is_constant(bias) else None
            if between is not None:
                return bias, [node.name, *between]
        return None
    between = _negated_product(graph, tensor, mean, gained)
    return None if between is None else (None, between)


def _negated_product(graph: Graph, tensor: Tensor, mean: Tensor, gained: Tensor) -> list[str] | None:
    for negated, factor in _factors(graph, tensor):
        sign = graph.nodes[negated.node]
        if factor == gained and sign.op == "Neg" and sign.inputs[0] == mean:
            return [tensor.node, sign.name]
    return None


def _refusal(graph: Graph, root: Node, norm: Norm) -> str | None:
    if root.name in graph.fed:
        return "it is fed from outside"
    inner = {root.name, *norm.removed}
    for name in norm.removed:
        node = graph.nodes[name]
        if name in graph.fetched | graph.fed or node.controls or graph.waiting(name):
            return "a part is an output of the graph as well, fed, or has control edges"
        if any(reader.name not in inner for reader in graph.readers(name)):
            return "something else reads a part"
    shape = graph.shape(norm.data)
    if shape is None:
        return "the rank is not known"
    for mean in (norm.variance, graph.nodes[norm.mean.node]):
        constant = graph.is_constant(mean.inputs[1])
        axes = graph.array(mean.inputs[1]).ravel() % len(shape) if constant else np.asarray([])
        if list(axes) != [len(shape) - 1] or not attr(mean, "keep_dims"):
            return "the means are not along the last axis"
    gain, bias = graph.array(norm.gain), None if norm.bias is None else graph.array(norm.bias)
    if gain.shape[-1:] != shape[-1:] or any(each is not None and each.size != shape[-1] for each in (gain, bias)):
        return "the gain or the bias is not one number for each element along the last axis"
    return None


def _replace(graph: Graph, root: Node, norm: Norm) -> None:
    make = Maker(graph, root, [])
    like = root
    centered = make.node("Sub", norm.data, norm.mean, like=like)
    squares = make.node("Square", centered, like=like)
    variance = make.node("Mean", squares, norm.variance.inputs[1], like=norm.variance)
    rsqrt = make.node("Rsqrt", make.node("AddV2", variance, norm.epsilon.inputs[1], like=like), like=like)
    result = make.node("Mul", make.node("Mul", centered, rsqrt, like=like), _vector(graph, make, norm.gain), like=like)
    if norm.bias is not None:
        result = make.node("AddV2", result, _vector(graph, make, norm.bias), like=like)
    last = graph.remove(result.node)
    graph.remove(root.name)
    graph.insert(Node(root.name, last.op, last.inputs, root.controls, last.attr, root.device))
    for name in norm.removed:
        graph.remove(name)


def _vector(graph: Graph, make: Maker, tensor: Tensor) -> Tensor:
    """Return a constant along the last axis without axes of size 1 before it."""
    array = graph.array(tensor)
    return tensor if array.ndim == 1 else make.constant("constant", array.reshape(-1))


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    rounds=True,
    after={"fold_shift": "this law removes a product and a sum that the folds match"},
    before={"cancel_reshapes_around": "constants have the shape that a layer gave them"},
)
