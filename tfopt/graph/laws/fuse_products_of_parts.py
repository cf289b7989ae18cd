"""Replace equal functions of the parts of a tensor, with products in them, by the function of the whole tensor.

    stack(f(A[0], K_0), f(A[1], K_1), …) = F(A, stack(K_0, K_1, …))        F is f with an additional axis
    A[0] K_0 + A[1] K_1 + … = [A[0], A[1], …] [K_0; K_1; …]

    before    A -> Unpack -> MatMul(K_0), MatMul(K_1), … -> Pack -> y
              A -> StridedSlice 0 -> MatMul(B) -> Pack -> y
              A -> StridedSlice 1 -> MatMul(B) ->
    after     A -> BatchMatMulV2(stack(K_0, K_1, …)) -> y
              A -> BatchMatMulV2(B) -> y

This is a loop that has been unrolled; `fuse_map_loops` handles a While. f may consist of the operations of `batched`,
so of several layers. The parts may be on either side of a product, or on both, and be taken by Unpack, Split, slices or
indices (`parts`). Every second slice, or slices in reversed order, are one StridedSlice; other orders are a GatherV2.
The results are stacked along any axis, joined by ConcatV2, written to a list that is stacked, or added. If they are
parts along another axis than an operation needs, a Transpose follows; few parts are stacked and unstacked instead.
Factors that are no parts are stacked, too. Every sum has the same terms, in an order that the kernel chooses.

Requires: a product in f; constants of equal shapes; static ranks; no other reader of what f computes, and no control
flow of version 1. Few small parts may be slower as one product, because a batched product and a Transpose cost as much
as several small operations: `benchmarks/loops.py --form parts` and ``--form unstacked`` measure it, and
``without:fuse_products_of_parts`` leaves them as they are.
"""

from typing import NamedTuple

import numpy as np

from tfopt.graph.law import INT32, Graph, Maker, Node, Refusal, SearchLaw, Tensor, attr
from tfopt.graph.matching.batched import MANY, PRODUCTS, Batch, Value, can_batch, evaluate
from tfopt.graph.matching.parts import Part, joined_axis, part_of, why_not_all
from tfopt.graph.op_registry import is_pure, output_types

SUMS = {"Add", "AddV2", "AddN"}
Column = tuple[Tensor, ...]  # the same tensor of each iteration


class Iterations(NamedTuple):
    """The results of all iterations, which a node joins, and what it adds to their sum."""

    results: Column
    others: tuple[Tensor, ...]
    inner: frozenset[str]  # nodes between the results and the node


def find(graph: Graph, root: Node) -> Iterations | str | None:
    """Return the results that a node joins if they look like those of a loop."""
    if root.op in SUMS:
        iterations = _terms(graph, root)
    elif root.op == "TensorListStack":
        iterations = _written(graph, root)
    else:
        results = root.inputs[:-1] if root.op == "ConcatV2" else root.inputs
        iterations = Iterations(tuple(results), (), frozenset())
    if iterations is None or len(iterations.results) < 2:
        return None
    nodes = [graph.nodes[tensor.node] for tensor in iterations.results]
    return iterations if len({node.op for node in nodes}) == 1 and is_pure(nodes[0]) else None


def rewrite(iterations: Iterations, make: Maker) -> list[Tensor]:
    """Return the function of the whole tensor, in the layout of the root.

    Raises:
        Refusal: If the results are not equal functions of parts.
    """
    unrolled = _Unrolled(make, iterations)
    if make.root.op not in SUMS:
        return [_joined(make, unrolled.batch, unrolled.value(iterations.results))]
    node = make.graph.nodes[iterations.results[0].node]
    if node.op == "MatMul":
        total = unrolled.product_total(iterations.results, node)
    else:
        total = unrolled.batch.total(unrolled.value(iterations.results))
    for other in iterations.others:
        total = make.node("AddV2", total, other, like=make.root)
    return [total]


def _terms(graph: Graph, root: Node) -> Iterations | None:
    """Return the terms of the largest sum that ends at a node: those of the commonest operation, and the others."""
    readers = graph.readers(root.name)
    if len(readers) == 1 and readers[0].op in SUMS and _is_inner(graph, root):
        return None
    terms, inner, queue = [], set(), list(reversed(root.inputs))
    while queue:
        tensor = queue.pop()
        node = graph.nodes[tensor.node]
        if node.op in SUMS and _is_inner(graph, node):
            inner.add(node.name)
            queue += reversed(node.inputs)
        else:
            terms.append(tensor)
    products = [term for term in terms if graph.nodes[term.node].op in PRODUCTS]
    results = products if len(products) > 1 else [] if products else terms
    if len(set(results)) < len(results):
        return None
    return Iterations(tuple(results), tuple(term for term in terms if term not in results), frozenset(inner))


def _is_inner(graph: Graph, node: Node) -> bool:
    return not graph.is_held(node) and graph.uses(node.name) == 1


def _written(graph: Graph, stack: Node) -> Iterations | None:
    elements: dict[int, Tensor] = {}
    inner = set()
    node = graph.nodes[stack.inputs[0].node]
    while node.op == "TensorListSetItem" and _is_inner(graph, node) and graph.is_constant(node.inputs[1]):
        inner.add(node.name)
        elements.setdefault(int(graph.array(node.inputs[1])), node.inputs[2])
        node = graph.nodes[node.inputs[0].node]
    size = node.inputs[1] if node.op == "TensorListReserve" else None
    if size is None or not graph.is_constant(size) or sorted(elements) != list(range(int(graph.array(size)))):
        return None
    return Iterations(tuple(elements[place] for place in sorted(elements)), (), frozenset(inner))


def _joined(make: Maker, batch: Batch, value: Value) -> Tensor:
    """Return the results of all iterations as the root joins them."""
    root = make.root
    if root.op != "ConcatV2":
        return batch.moved(value, joined_axis(make.graph, root, value.rank + 1) or 0 if root.op == "Pack" else 0).made
    axis, shape = joined_axis(make.graph, root, value.rank), make.graph.shape(Tensor(root.name))
    if axis is None or shape is None or shape.count(None) > 1 or (None in shape and 0 in shape):
        raise Refusal("several sizes of the joined result are open")
    count = len(root.inputs) - 1
    if axis and value.axis == 0 and count < MANY:
        first = make.node("Unpack", value.made, like=root, num=count, axis=0)
        parts = [Tensor(first.node, index) for index in range(count)]
        return make.node("ConcatV2", *parts, make.integers("axis", axis), like=root, Tidx=INT32)
    return make.reshape(batch.moved(value, axis).made, shape, root)


class _Unrolled:
    """Computes columns of equal nodes at once."""

    def __init__(self, make: Maker, iterations: Iterations) -> None:
        self.graph, self.make, self.batch = make.graph, make, Batch(make, len(iterations.results))
        self._inner = set(iterations.inner)
        self._beside_parts: set[Column] = set()
        self._is_divided = self._has_product = False

    def value(self, column: Column) -> Value:
        """Return a column as one value, and require that nothing else reads what it computes."""
        value = evaluate(column, self._leaf, self._operate)
        self._check()
        return value

    def product_total(self, products: Column, node: Node) -> Tensor:
        """Return the sum of matrix products."""
        sides = self._inputs(products)
        operands = [evaluate(side, self._leaf, self._operate) for side in sides]
        self._check()
        shapes = [self.graph.shape(side[0]) for side in sides]
        flags = attr(node, "transpose_a"), not attr(node, "transpose_b")
        lengths = [shape[0 if first else 1] for shape, first in zip(shapes, flags, strict=True) if shape is not None]
        return self.batch.product_total(node, operands, next((size for size in lengths if size), None))

    def _check(self) -> None:
        if not self._is_divided:
            raise Refusal("not every factor is a part of a tensor, or a constant")
        if not self._has_product:
            raise Refusal("there is no product")
        allowed = {self.make.root.name, *self._inner, *self.make.made}
        if any(reader.name not in allowed for name in self._inner for reader in self.graph.readers(name)):
            raise Refusal("something else reads a part")

    def _leaf(self, column: Column) -> Value | list[Column]:
        if len(set(column)) == 1:
            return self._same(column[0])
        if all(map(self.graph.is_constant, column)):
            return self._constants([self.graph.array(tensor) for tensor in column], column)
        if parts := _parts_of_one(self.graph, column):
            return self._parts(parts, column)
        try:
            return self._inputs(column)
        except Refusal:
            if column not in self._beside_parts:
                raise
            return self._packed(column)

    def _same(self, tensor: Tensor) -> Value:
        shape = self.graph.shape(tensor)
        if self.graph.is_constant(tensor):
            shape = self.graph.array(tensor).shape
        if shape is None:
            raise Refusal("the rank of a tensor is not known")
        return Value(len(shape), tensor)

    def _constants(self, arrays: list[np.ndarray], column: Column) -> Value:
        if any(self.graph.nodes[tensor.node].controls for tensor in column):
            raise Refusal("a constant carries a control edge")
        if len({(array.shape, array.dtype) for array in arrays}) > 1:
            raise Refusal("the matrices have different shapes")
        if all(np.array_equal(array, arrays[0]) for array in arrays[1:]):
            return Value(arrays[0].ndim, column[0])
        return Value(arrays[0].ndim, self.make.constant("matrices", np.stack(arrays)), 0)

    def _parts(self, parts: list[Part], column: Column) -> Value:
        source, axis, is_index, total = parts[0].source, parts[0].axis, parts[0].is_index, parts[0].total
        shape, numbers = self.graph.shape(source), [part.number for part in parts]
        if shape is None or any((part.axis, part.is_index) != (axis, is_index) for part in parts):
            raise Refusal("the factors are parts along different axes")
        self._is_divided = True
        makers = {self.graph.nodes[tensor.node].op for tensor in column}
        existing = column if makers <= {"Split", "SplitV", "Unpack"} else ()
        if is_index:
            value = self.batch.slices(source, axis, numbers)
            return Value(value.rank, value.made, axis, existing)
        if reason := why_not_all(parts):
            raise Refusal(reason)
        size = shape[axis]
        sizes = (*shape[:axis], total, None if size is None else size // total, *shape[axis + 1 :])
        if sizes.count(None) > 1 or (None in sizes and 0 in sizes):
            raise Refusal("several sizes of the divided tensor are open")
        return Value(len(shape), self.make.reshape(source, sizes, self.graph.nodes[column[0].node]), axis, existing)

    def _inputs(self, column: Column) -> list[Column]:
        nodes = [self.graph.nodes[tensor.node] for tensor in column]
        first = nodes[0]
        if not can_batch(first.op):
            raise Refusal(f"there is {first.op}, which has no known form for all slices at once")
        if any(node.op != first.op or len(node.inputs) != len(first.inputs) for node in nodes) or not first.inputs:
            raise Refusal("the results are not computed in the same way")
        if any(_attributes(node) != _attributes(first) for node in nodes[1:]):
            raise Refusal("operations have different attributes")
        if any(tensor.output or self.graph.is_held(node) for tensor, node in zip(column, nodes, strict=True)):
            raise Refusal("a part is an output of the graph as well, fed from outside, or carries a control edge")
        self._inner.update(node.name for node in nodes)
        self._has_product |= first.op in PRODUCTS
        columns = [tuple(node.inputs[place] for node in nodes) for place in range(len(first.inputs))]
        if first.op == "MatMul":
            self._beside_parts |= {columns[1 - place] for place in (0, 1) if _parts_of_one(self.graph, columns[place])}
        return columns

    def _packed(self, column: Column) -> Value:
        """Stack matrices of equal, known shapes."""
        shape = self.graph.shape(column[0])
        if shape is None or None in shape or any(self.graph.shape(tensor) != shape for tensor in column[1:]):
            raise Refusal("not every factor is a part of a tensor, or a constant")
        kind = output_types(self.graph.nodes[column[0].node])[column[0].output]
        made = self.make.node("Pack", *column, like=self.make.root, T=kind, N=len(column), axis=0)
        return Value(len(shape), made, 0)

    def _operate(self, column: Column, operands: list[Value]) -> Value:
        return self.batch.operation(self.graph.nodes[column[0].node], operands)


def _parts_of_one(graph: Graph, column: Column) -> list[Part]:
    """Return which parts of one tensor the tensors are; empty if they are not."""
    parts = [part for tensor in column if (part := part_of(graph, tensor)) is not None]
    return parts if len(parts) == len(column) and len({part.source for part in parts}) == 1 else []


def _attributes(node: Node) -> dict[str, bytes]:
    return {name: value.SerializeToString(deterministic=True) for name, value in node.attr.items() if name[0] != "_"}


LAW = SearchLaw(
    ("Pack", "ConcatV2", "TensorListStack", "AddN", "AddV2", "Add"),
    find,
    rewrite,
    rounds=True,
    before={"fold_scale_before": "the folds have one kernel to fold into then"},
    follows="fuse_map_loops",
)
