"""Replace products of all parts of a tensor, each with a matrix of its own, by one batched product.

    stack(A[0] K_0 + b_0, A[1] K_1 + b_1, …) = A stack(K_0, K_1, …) + stack(b_0, b_1, …)

    before    A -> Unpack -> MatMul(K_0), MatMul(K_1), … -> Pack -> y
    after     A -> BatchMatMulV2(stack(K_0, K_1, …)) -> y

The parts may be on either side of the products, or on both, and be taken by Unpack, Split, slices or indices (`parts`).
Parts of a matrix, and a result of ConcatV2, are matrices: a Reshape is before or after the product. If they are parts
along the second axis, so is a Transpose; few of them are stacked and unstacked instead. Matrices that are no constants
are stacked, too, and a unary operation after each product follows the batched one. Every sum has the same terms, in an
order that the kernel chooses. `fuse_products_of_slices` handles one matrix for all parts of a tensor of rank 3, which
needs no copies of it.

Requires: all parts, in order, of a known number; the other matrices constant, or of known shapes; matrices and biases
of equal shapes; no other reader of a product, and no control flow of version 1. Few small parts may be slower as one
product, because a batched product and a Transpose cost as much as several small operations: `benchmarks/loops.py --form
parts` and ``--form unstacked`` measure it, and ``without:fuse_products_of_parts`` leaves them as they are.
"""

from typing import NamedTuple

import numpy as np

from tfopt.graph.law import INT32, Maker, SearchLaw, attr
from tfopt.graph.matching.inner_nodes import product_refusal
from tfopt.graph.matching.parts import joined_axis, part_of, why_not_all
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import TESTS, UNARY

ADDING = ("BiasAdd", "Add", "AddV2")
MANY = 32  # parts, from which on a Transpose is faster than to stack them (benchmarks/loops.py)
FOLLOWING = UNARY - TESTS - {"Cast"}  # the others keep the dtype


class Side(NamedTuple):
    """One side of all products: the matrices, and the tensor of rank 3, or matrix, if they are all parts of one."""

    source: Tensor | None
    axis: int
    matrices: list[Tensor]
    columns: int = 0  # of a matrix that is divided


class Ends(NamedTuple):
    """The products of a loop, the biases and sums after them, and an operation after each of these."""

    products: list[Node]
    biases: list[Tensor]
    sums: list[Node]
    unary: list[Node]


class Loop(NamedTuple):
    """Products of all parts, and both sides of them."""

    ends: Ends
    sides: list[Side]
    axis: int
    width: int | None  # of a product, if the result is a matrix


def find(graph: Graph, stack: Node) -> Loop | str | None:
    """Return the products that a stack joins, which look like a loop."""
    ends = _ends(graph, stack)
    return _loop(graph, stack, ends) if isinstance(ends, Ends) else ends


def rewrite(loop: Loop, make: Maker) -> list[Tensor]:
    """Return the batched product, with biases and an operation after it, in the layout of the stack."""
    products, biases, _, unary = loop.ends
    like, is_joined = products[0], make.root.op == "ConcatV2"
    inputs = [_batched(make, side, loop) for side in loop.sides]
    changed = {"adj_x": attr(like, "transpose_a"), "adj_y": attr(like, "transpose_b")}
    result = make.node("BatchMatMulV2", *inputs, like=like, **changed)
    few = is_joined and loop.axis == 1 and len(products) < MANY
    result = _side_by_side(make, result, loop) if few else result
    if biases:
        rows = np.stack([make.graph.array(bias).reshape(1, -1) for bias in biases])
        row = np.broadcast_to(rows, (len(rows), 1, loop.width or 0)).reshape(-1) if few else rows
        result = make.node("BiasAdd" if few else "AddV2", result, make.constant("bias", row), like=like)
    if unary:
        result = make.node(unary[0].op, result, like=unary[0])
    if loop.axis == 1 and not few:
        result = _exchanged(make, result, like)
    if is_joined and not few:
        result = make.reshape(result, (None, (loop.width or 0) * (len(products) if loop.axis else 1)), like)
    return [result]


def _ends(graph: Graph, stack: Node) -> Ends | str | None:
    """Return what is stacked, or why it is no loop of products; None if it looks like none."""
    last = [graph.nodes[tensor.node] for tensor in (stack.inputs if stack.op == "Pack" else stack.inputs[:-1])]
    unary = last if last[0].op in FOLLOWING else []
    if len({(node.op, _attributes(node)) for node in unary}) > 1:
        return None
    ends = [graph.nodes[node.inputs[0].node] for node in last] if unary else last
    if len(ends) < 2 or any(end.op not in ("MatMul", *ADDING) for end in ends):
        return None
    sums = [end for end in ends if end.op in ADDING]
    if any(end.op == "BiasAdd" and attr(end, "data_format") == "NCHW" for end in sums):
        return "a bias is along the first axis"
    operands = [_operands(graph, end) if end in sums else (Tensor(end.name), None) for end in ends]
    products = [graph.nodes[product.node] for product, _ in operands]
    if len(sums) not in (0, len(ends)) or any(product.op != "MatMul" for product in products):
        return "not every part is a product, with a bias or without one"
    return Ends(products, [bias for _, bias in operands if bias is not None], sums, unary)


def _operands(graph: Graph, end: Node) -> tuple[Tensor, Tensor]:
    """Return the product and the bias of a sum."""
    first, other = end.inputs
    return (first, other) if graph.nodes[first.node].op == "MatMul" else (other, first)


def _attributes(node: Node) -> tuple[tuple[str, bytes], ...]:
    shown = ((name, value.SerializeToString(deterministic=True)) for name, value in node.attr.items())
    return tuple(sorted(each for each in shown if not each[0].startswith("_")))


def _loop(graph: Graph, stack: Node, ends: Ends) -> Loop | str:
    products = ends.products
    if reason := product_refusal(graph, [*products, *ends.sums, *ends.unary]):
        return reason
    names = ("transpose_a", "transpose_b")
    if len({tuple(attr(product, name) for name in names) for product in products}) > 1:
        return "some factors are transposed, others are not"
    sides = _sides(graph, [[product.inputs[index] for product in products] for index in (0, 1)])
    if isinstance(sides, str):
        return sides
    divided = [side for side in sides if side.source is not None]
    lengths = {_length(graph, bias) for bias in ends.biases}
    if None in lengths or len(lengths) > 1:
        return "the biases are no constant vectors of equal length"
    axis = joined_axis(graph, stack, 3 if stack.op == "Pack" else 2)
    if axis is None or axis == 2 or any(side.axis == 2 for side in divided):
        return "a matrix is divided along, or stacked after, its columns"
    width = (graph.shape(Tensor(products[0].name)) or (None, None))[1]
    if width is not None and not lengths <= {1, width}:
        return "the biases are no constant vectors of equal length"
    if stack.op == "ConcatV2" and width is None:
        return "the width of the products is not known"
    return Loop(ends, sides, axis, width)


def _sides(graph: Graph, factors: list[list[Tensor]]) -> list[Side] | str:
    """Return both sides of the products, or why neither is all parts of a tensor."""
    sides = [_side(graph, tensors) for tensors in factors]
    for index in (0, 1):
        other = sides[1 - index]
        if isinstance(sides[index], str) and isinstance(other, Side) and other.source is not None:
            sides[index] = _others(graph, factors[index], str(sides[index]))
    for side in sides:
        if isinstance(side, str):
            return side
    both = [side for side in sides if isinstance(side, Side)]
    return both if any(side.source is not None for side in both) else "neither side is divided"


def _others(graph: Graph, tensors: list[Tensor], reason: str) -> Side | str:
    """Return matrices of equal, known shapes, which can be stacked, as one side."""
    shapes = {graph.shape(tensor) for tensor in tensors}
    shape = shapes.pop()
    is_known = not shapes and shape is not None and len(shape) == 2 and None not in shape
    return Side(None, 0, tensors) if is_known and len(set(tensors)) == len(tensors) else reason


def _length(graph: Graph, bias: Tensor) -> int | None:
    """Return the number of elements of a constant vector, or of a single row; None for other tensors."""
    if not graph.is_constant(bias) or graph.nodes[bias.node].controls:
        return None
    array = graph.array(bias)
    return array.size if array.ndim == 1 or (array.ndim == 2 and len(array) == 1) else None


def _side(graph: Graph, tensors: list[Tensor]) -> Side | str:
    """Return one side of the products, or why it is neither all parts of a tensor nor constants."""
    if all(graph.is_constant(tensor) for tensor in tensors):
        if len({graph.array(tensor).shape for tensor in tensors}) > 1:
            return "the matrices have different shapes"
        return Side(None, 0, tensors)
    parts = [part_of(graph, tensor) for tensor in tensors]
    first = parts[0]
    if first is None or any(part is None or part.source != first.source for part in parts):
        return "not every factor is a part of a tensor, or a constant"
    shape = graph.shape(first.source)
    rank = 3 if first.is_index else 2
    if shape is None or len(shape) != rank or (rank == 2 and shape[1] is None):
        expected = "to have rank 3" if first.is_index else "to be a matrix, of a known width"
        return f"the tensor that is divided is not known {expected}"
    if reason := why_not_all([part for part in parts if part is not None]):
        return reason
    return Side(first.source, first.axis, tensors, 0 if first.is_index else shape[1] or 0)


def _side_by_side(make: Maker, product: Tensor, loop: Loop) -> Tensor:
    """Join the matrices of a product along their columns."""
    like, count = loop.ends.products[0], len(loop.ends.products)
    first = make.node("Unpack", product, like=like, num=count, axis=0)
    matrices = [Tensor(first.node, index) for index in range(count)]
    return make.node("ConcatV2", *matrices, make.integers("axis", 1), like=like, N=count, Tidx=INT32)


def _batched(make: Maker, side: Side, loop: Loop) -> Tensor:
    """Return a tensor of rank 3 with all parts, one after the other."""
    graph = make.graph
    if side.source is None and all(graph.is_constant(tensor) for tensor in side.matrices):
        return make.constant("matrices", np.stack([graph.array(tensor) for tensor in side.matrices]))
    makers = {graph.nodes[tensor.node].op for tensor in side.matrices}
    few = side.axis == 1 and len(side.matrices) < MANY and makers <= {"Split", "SplitV", "Unpack"}
    if side.source is None or few:
        return make.node("Pack", *side.matrices, like=loop.ends.products[0], N=len(side.matrices), axis=0)
    tensor, like, count = side.source, loop.ends.products[0], len(loop.ends.products)
    if side.columns:
        sizes = (None, count, side.columns // count) if side.axis else (count, None, side.columns)
        tensor = make.reshape(tensor, sizes, like)
    return _exchanged(make, tensor, like) if side.axis == 1 else tensor


def _exchanged(make: Maker, tensor: Tensor, like: Node) -> Tensor:
    """Exchange the first two axes."""
    return make.node("Transpose", tensor, make.integers("perm", (1, 0, 2)), like=like, Tperm=INT32)


LAW = SearchLaw(
    ("Pack", "ConcatV2"),
    find,
    rewrite,
    rounds=True,
    after={"fuse_products_of_slices": "products with one matrix need no copies of it"},
)
