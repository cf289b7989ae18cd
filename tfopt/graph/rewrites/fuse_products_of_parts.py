"""Replace products of all parts of a tensor, each with a matrix of its own, by one batched product.

    stack(A[0] K_0 + b_0, A[1] K_1 + b_1, …) = A stack(K_0, K_1, …) + stack(b_0, b_1, …)

    before    A -> Unpack -> MatMul(K_0), MatMul(K_1), … -> Pack -> y
    after     A -> BatchMatMulV2(stack(K_0, K_1, …)) -> y

The parts may be on either side of the products, or on both. Those of a Split, and a result of ConcatV2, are matrices:
a Reshape is before or after the product. If they are parts along the second axis, so is a Transpose. Every sum has the
same terms, in an order that the kernel chooses. `fuse_products_of_slices` handles one matrix for all parts of a tensor
of rank 3, which needs no copies of it.

Requires: all parts, in order, of a known number; the other matrices constant; matrices and biases of equal shapes; no
other reader of a product, and no control flow of version 1. Few small parts may be slower as one product, because a
batched product and a Transpose cost as much as several small operations: `benchmarks/loops.py --form parts` and
`--form unstacked` measure it, and ``without:fuse_products_of_parts`` leaves them as they are.
"""

from typing import NamedTuple

import numpy as np

from tfopt.graph.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Whole, attr

NAME = "fuse_products_of_parts"
ADDING = ("BiasAdd", "Add", "AddV2")


class Side(NamedTuple):
    """One side of all products: a tensor of rank 3, or a matrix, that is divided along an axis, or constants."""

    source: Tensor | None
    axis: int
    constants: list[Tensor]
    columns: int = 0  # of a matrix that is divided


class Loop(NamedTuple):
    """Products of all parts, both sides of them, and the biases after them."""

    products: list[Node]
    sides: list[Side]
    biases: list[Tensor]
    sums: list[Node]
    axis: int
    width: int | None  # of a product, if the result is a matrix


def run(graph: Graph, report: Report) -> int:
    """Replace every stack of such products."""
    fired = 0
    for stack in graph.of_op("Pack", "ConcatV2") if not is_framed(graph) else ():
        ends = [graph.nodes[tensor.node] for tensor in (stack.inputs if stack.op == "Pack" else stack.inputs[:-1])]
        if len(ends) < 2 or any(end.op not in ("MatMul", *ADDING) for end in ends):
            continue
        loop = _loop(graph, stack, ends)
        if isinstance(loop, str):
            report.refuse(NAME, stack.name, loop)
            continue
        _replace(graph, stack, loop)
        report.fire(NAME, stack.name)
        fired += 1
    return fired


def _loop(graph: Graph, stack: Node, ends: list[Node]) -> Loop | str:
    sums = [end for end in ends if end.op in ADDING]
    if any(end.op == "BiasAdd" and attr(end, "data_format") == "NCHW" for end in sums):
        return "a bias is along the first axis"
    products = [graph.nodes[end.inputs[0].node] if end in sums else end for end in ends]
    if len(sums) not in (0, len(ends)) or any(product.op != "MatMul" for product in products):
        return "not every part is a product, with a bias or without one"
    for node in [*products, *sums]:
        if node.name in graph.fetched | graph.fed or node.controls or graph.waiting(node.name):
            return "a product is an output of the graph as well, fed from outside, or carries a control edge"
        if graph.uses(node.name) != 1:
            return f"a product has {graph.uses(node.name)} consumers"
    names = ("transpose_a", "transpose_b")
    if len({tuple(attr(product, name) for name in names) for product in products}) > 1:
        return "some factors are transposed, others are not"
    sides = [_side(graph, [product.inputs[index] for product in products]) for index in (0, 1)]
    for side in sides:
        if isinstance(side, str):
            return side
    divided = [side for side in sides if isinstance(side, Side) and side.source is not None]
    if not divided:
        return "neither side is divided"
    biases = [end.inputs[1] for end in sums]
    vectors = all(_is_vector(graph, bias) for bias in biases)
    if not vectors or len({graph.array(bias).shape for bias in biases}) > 1:
        return "the biases are no constant vectors of equal length"
    axis = _axis(graph, stack)
    if axis is None or any(side.axis == 2 for side in divided):
        return "a matrix is divided along, or stacked after, its columns"
    width = (graph.shape(Tensor(products[0].name)) or (None, None))[1]
    if stack.op == "ConcatV2" and width is None:
        return "the width of the products is not known"
    return Loop(products, [side for side in sides if isinstance(side, Side)], biases, sums, axis, width)


def _axis(graph: Graph, stack: Node) -> int | None:
    """Return 0 or 1, the axis along which the products are joined; None for another or unknown one."""
    if stack.op == "Pack":
        return axis if (axis := attr(stack, "axis") % 3) < 2 else None
    return int(graph.array(stack.inputs[-1])) % 2 if graph.is_constant(stack.inputs[-1]) else None


def _is_vector(graph: Graph, tensor: Tensor) -> bool:
    return graph.is_constant(tensor) and graph.array(tensor).ndim == 1 and not graph.nodes[tensor.node].controls


def _side(graph: Graph, tensors: list[Tensor]) -> Side | str:
    """Return one side of the products, or why it is neither all parts of a tensor nor constants."""
    if all(graph.is_constant(tensor) for tensor in tensors):
        if len({graph.array(tensor).shape for tensor in tensors}) > 1:
            return "the matrices have different shapes"
        return Side(None, 0, tensors)
    node = graph.nodes[tensors[0].node]
    if node.op in ("Split", "SplitV") and node.name not in graph.fed and not node.controls:
        return _split_side(graph, tensors, node)
    if node.op != "Unpack" or node.name in graph.fed or node.controls:
        return "not every factor is a part of a tensor, or a constant"
    if tensors != [Tensor(node.name, index) for index in range(attr(node, "num"))]:
        return "the factors are not all parts of one tensor, in order"
    shape = graph.shape(node.inputs[0])
    if shape is None or len(shape) != 3:
        return "the tensor that is divided is not known to have rank 3"
    return Side(node.inputs[0], attr(node, "axis") % 3, [])


def _split_side(graph: Graph, tensors: list[Tensor], node: Node) -> Side | str:
    """Return the side that a Split divides, or why its parts are not all of a matrix, in order and of equal sizes."""
    if tensors != [Tensor(node.name, index) for index in range(attr(node, "num_split"))]:
        return "the factors are not all parts of one tensor, in order"
    source, axis = node.inputs[node.op == "Split"], node.inputs[0 if node.op == "Split" else 2]
    shape = graph.shape(source)
    if shape is None or len(shape) != 2 or shape[1] is None or not graph.is_constant(axis):
        return "the tensor that is divided is not known to be a matrix, of a known width"
    if len({graph.shape(tensor) for tensor in tensors}) > 1 or (node.op == "SplitV" and not _is_even(graph, node)):
        return "the parts have different sizes"
    return Side(source, int(graph.array(axis)) % 2, [], shape[1])


def _is_even(graph: Graph, node: Node) -> bool:
    return graph.is_constant(node.inputs[1]) and len(set(graph.array(node.inputs[1]).tolist())) == 1


def _replace(graph: Graph, stack: Node, loop: Loop) -> None:
    like = loop.products[0]
    make = Maker(graph, stack, [])
    inputs = [_batched(graph, make, side, loop) for side in loop.sides]
    changed = {"adj_x": attr(like, "transpose_a"), "adj_y": attr(like, "transpose_b")}
    result = make.node("BatchMatMulV2", *inputs, like=like, **changed)
    if loop.biases:
        rows = np.stack([graph.array(bias) for bias in loop.biases])[:, None]
        result = make.node("AddV2", result, make.constant("bias", rows), like=like)
    if loop.axis == 1:
        result = _exchanged(make, result, like)
    if stack.op == "ConcatV2":
        result = make.reshape(result, (None, (loop.width or 0) * (len(loop.products) if loop.axis else 1)), like)
    graph.remove(stack.name)
    last = graph.remove(result.node)
    graph.insert(Node(stack.name, last.op, last.inputs, stack.controls, last.attr, stack.device))
    for node in [*loop.sums, *loop.products]:
        graph.remove(node.name)


def _batched(graph: Graph, make: Maker, side: Side, loop: Loop) -> Tensor:
    """Return a tensor of rank 3 with all parts, one after the other."""
    if side.source is None:
        return make.constant("matrices", np.stack([graph.array(tensor) for tensor in side.constants]))
    tensor, like, count = side.source, loop.products[0], len(loop.products)
    if side.columns:
        sizes = (None, count, side.columns // count) if side.axis else (count, None, side.columns)
        tensor = make.reshape(tensor, sizes, like)
    return _exchanged(make, tensor, like) if side.axis == 1 else tensor


def _exchanged(make: Maker, tensor: Tensor, like: Node) -> Tensor:
    """Exchange the first two axes."""
    order = make.constant("perm", np.asarray([1, 0, 2], np.int32))
    kind = make.graph.nodes[order.node].attr["dtype"].type
    return make.node("Transpose", tensor, order, like=like, Tperm=kind)


LAW = Whole(run, requires=("direct edges", "folded constants"))
