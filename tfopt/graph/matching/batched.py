"""Compute an operation for all iterations of a loop at once: operands have an additional axis, that of the iterations.

The loop may be a While, or be unrolled into equal expressions. The additional axis may be at any place; it moves only
where an operation needs it elsewhere. Axes are counted from the right to align operands, as broadcasting does.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any, TypeVar

import numpy as np

from tfopt.graph.law import INT32, Maker, Node, Refusal, Tensor, attr
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY, output_types

ONE_OPERAND = UNARY | {"Identity", "StopGradient"}
LAST_AXIS = {"Softmax", "LogSoftmax"}
PRODUCTS = {"MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum"}
COMPLEX = {8, 18}  # complex dtypes, which BatchMatMulV2 conjugates when it transposes; MatMul does not
MANY = 32  # parts, from which on a Transpose is faster than to stack them (benchmarks/loops.py)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Value:
    """A tensor of all iterations."""

    rank: int  # rank of the tensor in one iteration
    made: Tensor  # the tensor outside of the loop
    # axis of the iterations, by which ``made`` has a higher rank; None if it is the same in each iteration
    axis: int | None = None
    parts: tuple[Tensor, ...] = ()  # the tensors of the iterations, if they exist outside of the loop

    @property
    def right(self) -> int:
        """Number of axes after that of the iterations; the rank if there is none."""
        return self.rank - (self.axis or 0)


def evaluate(
    root: Key, leaf: Callable[[Key], Value | list[Key]], operate: Callable[[Key, list[Value]], Value]
) -> Value:
    """Return the value of a key after those that it depends on; ``leaf`` returns a value, or these keys."""
    values: dict[Key, Value] = {}
    needs: dict[Key, list[Key]] = {}
    pending = [root]
    while pending:
        key = pending[-1]
        if key in values:
            pending.pop()
        elif key in needs:
            values[key] = operate(key, [values[each] for each in needs[key]])
        elif isinstance(value := leaf(key), Value):
            values[key] = value
        else:
            needs[key] = value
            pending += reversed(value)  # the first operand first: kernels are stacked only if it is divided
    return values[root]


class Batch:
    """Adds operations on all iterations to a graph.

    Attributes:
        make: Adds nodes.
        count: The number of iterations; None if it is open.
    """

    def __init__(self, make: Maker, count: int | None) -> None:
        """Start without operations."""
        self.make, self.count = make, count

    def operation(self, node: Node, operands: list[Value]) -> Value:
        """Add an operation of an iteration for all of them.

        Raises:
            Refusal: If it has no known form for all iterations at once.
        """
        if node.op == "BiasAdd" and attr(node, "data_format") == "NCHW":
            raise Refusal("a bias is along the first axis")
        varies = any(value.axis is not None for value in operands)
        if node.op in ONE_OPERAND:
            return self._like(node, node.op, operands, operands[0].rank, operands[0].axis)
        if node.op in BINARY or node.op == "BiasAdd":
            return self._elementwise(node, operands)
        if varies and node.op in RULES:
            return RULES[node.op](self, node, operands)
        raise Refusal(f"the body has {node.op}, which has no known form for all slices at once")

    def moved(self, value: Value, axis: int) -> Value:
        """Return a value with its iterations along an axis."""
        if value.axis is None:
            raise Refusal("a result that is the same in each iteration")
        if value.axis == axis:
            return value
        if axis == 0 and 0 < len(value.parts) < MANY:
            made = self.make.node(
                "Pack", *value.parts, like=self.make.root, T=self._dtype(value.made), N=len(value.parts), axis=0
            )
            return Value(value.rank, made, 0)
        order = [place for place in range(value.rank + 1) if place != value.axis]
        order.insert(axis, value.axis)
        made = self._add("Transpose", value.made, self.make.integers("perm", order), Tperm=INT32)
        return Value(value.rank, made, axis)

    def slices(self, source: Tensor, axis: int, numbers: Sequence[int]) -> Value:
        """Return slices of a tensor of known rank along an axis, in the order of their numbers."""
        shape = self.make.graph.shape(source) or ()
        size, rank, count = shape[axis], len(shape) - 1, len(numbers)
        step = numbers[1] - numbers[0] if count > 1 else 1
        is_even = step and list(numbers) == list(range(numbers[0], numbers[0] + step * count, step))
        if size is None or not is_even or not all(0 <= number < size for number in numbers):
            made = self._gather(source, axis, numbers)  # which refuses indices that are too large
        elif list(numbers) == list(range(size)):
            made = source
        else:
            made = self._every(source, axis, numbers[0], numbers[0] + step * count, step)
        self.make.graph.set_shape(made, (*shape[:axis], count, *shape[axis + 1 :]))
        return Value(rank, made, axis)

    def reverse(self, source: Tensor, axis: int) -> Tensor:
        """Return a tensor in reversed order along an axis."""
        return self._add("ReverseV2", source, self.make.integers("axis", [axis]), Tidx=INT32)

    def _gather(self, source: Tensor, axis: int, numbers: Sequence[int]) -> Tensor:
        places = self.make.integers("places", numbers), self.make.integers("axis", axis)
        kinds = {"Tparams": self._dtype(source), "Tindices": INT32, "Taxis": INT32}
        return self.make.node("GatherV2", source, *places, like=self.make.root, role="slices", batch_dims=0, **kinds)

    def _every(self, source: Tensor, axis: int, begin: int, end: int, step: int) -> Tensor:
        bounds = ([*[0] * axis, begin], [*[0] * axis, max(end, 0)], [*[1] * axis, step])
        before = (1 << axis) - 1  # the axes that are whole
        masks = {"begin_mask": before, "end_mask": before | (end < 0) << axis}
        zeros = dict.fromkeys(("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
        inputs = [self.make.integers("bound", bound) for bound in bounds]
        return self._add("StridedSlice", source, *inputs, Index=INT32, **masks, **zeros)

    def total(self, value: Value) -> Tensor:
        """Return the sum of all iterations."""
        if value.axis is None:
            raise Refusal("a result that is the same in each iteration")
        return self._add("Sum", value.made, self.make.integers("axis", [value.axis]), Tidx=INT32, keep_dims=False)

    def product_total(self, node: Node, operands: list[Value], inner: int | None) -> Tensor:
        """Return the sum of matrix products over all iterations, given the length of the sums in one product."""
        x, y = operands
        flags = {name: bool(attr(node, name)) for name in ("transpose_a", "transpose_b")}
        if x.axis is not None and y.axis is not None:
            if inner is None or self.count is None:
                raise Refusal("the number of terms of each sum is not known")
            rows = self._flat(x, inner * self.count, first=flags["transpose_a"])
            columns = self._flat(y, inner * self.count, first=not flags["transpose_b"])
        else:
            rows, columns = (value.made if value.axis is None else self.total(value) for value in operands)
        return self.make.node("MatMul", rows, columns, like=node, role="total", **flags)

    def _flat(self, value: Value, inner: int, *, first: bool) -> Tensor:
        """Return the matrices of all iterations as one, next to each other along one of its axes."""
        made = self.moved(value, 0 if first else 1).made
        return self.make.reshape(made, (inner, None) if first else (None, inner), self.make.root, T=self._dtype(made))

    def _like(self, node: Node, op: str, operands: Iterable[Value], rank: int, axis: int | None) -> Value:
        return Value(rank, self._again(node, *(value.made for value in operands), op=op), axis)

    def _again(self, node: Node, *inputs: Tensor, op: str = "", **changed: Any) -> Tensor:
        return self.make.node(op or node.op, *inputs, like=node, role=node.name, **changed)

    def _add(self, op: str, *inputs: Tensor, **changed: Any) -> Tensor:
        return self.make.node(op, *inputs, like=self.make.root, T=self._dtype(inputs[0]), **changed)

    def _dtype(self, tensor: Tensor) -> int:
        return output_types(self.make.graph.nodes[tensor.node])[tensor.output]

    def first(self, value: Value, rank: int) -> Value:
        """Return a value with its iterations first, and axes of size 1 after these up to a rank."""
        value = self.moved(value, 0)
        made = value.made
        for _ in range(rank - value.rank):
            made = self._add("ExpandDims", made, self.make.integers("axis", 1), Tdim=INT32)
        return Value(rank, made, 0)

    def _aligned(self, operands: list[Value], rank: int, least: int = 0) -> tuple[list[Value], int | None]:
        """Return operands that broadcast in all iterations at once, and the axis of these in the result.

        ``rank`` is the highest rank of an operand; at least ``least`` axes follow that of the iterations.
        """
        varying = [value for value in operands if value.axis is not None]
        if not varying:
            return operands, None
        right = varying[0].right
        fixed = max([value.rank for value in operands if value.axis is None], default=0)
        if all(value.right == right for value in varying) and right >= max(fixed, least):
            return operands, rank - right
        return [value if value.axis is None else self.first(value, rank) for value in operands], 0

    def _elementwise(self, node: Node, operands: list[Value]) -> Value:
        rank = max(value.rank for value in operands)
        op = "AddV2" if node.op == "BiasAdd" and operands[1].axis is not None else node.op
        operands, axis = self._aligned(operands, rank)
        return self._like(node, op, operands, rank, axis)

    def _softmax(self, node: Node, operands: list[Value]) -> Value:
        [value] = operands
        value = self.moved(value, 0) if not value.right else value
        return self._like(node, node.op, [value], value.rank, value.axis)

    def _product(self, node: Node, operands: list[Value]) -> Value:
        x, y = operands
        if attr(node, "T") in COMPLEX:
            raise Refusal("the products are of complex numbers")
        names = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
        flags = dict(zip(("adj_x", "adj_y"), (bool(attr(node, name)) for name in names), strict=True))
        if x.rank != y.rank and 2 in (x.rank, y.rank):
            return self._contraction(node, operands, **flags)
        if max(x.rank, y.rank) > 2 and (x.rank != y.rank or None in (x.axis, y.axis)):
            raise Refusal("a batch of matrices is the same in each iteration")
        is_between = x.axis is not None and x.right == 1 and y.axis is None and not flags["adj_x"]
        operands, axis = (operands, x.axis) if is_between else self._aligned(operands, x.rank, least=2)
        made = self._again(node, *(value.made for value in operands), op="BatchMatMulV2", **flags)
        return Value(x.rank, made, axis)

    def _contraction(self, node: Node, operands: list[Value], *, adj_x: bool, adj_y: bool) -> Value:
        """Add an Einsum for a product of a batch with one matrix.

        A BatchMatMulV2 of four axes that broadcasts over one of size 1 writes to wrong memory with oneDNN (TensorFlow
        2.21).
        """
        rank = max(value.rank for value in operands)
        batch = ascii_letters[: rank - 2]
        terms = [
            ("" if value.rank == 2 else batch) + (columns + rows if flag else rows + columns)
            for value, flag, rows, columns in zip(operands, (adj_x, adj_y), "XY", "YZ", strict=True)
        ]
        return self._with_iterations(node, operands, terms, f"{batch}XZ")

    def _einsum(self, node: Node, operands: list[Value]) -> Value:
        equation = str(attr(node, "equation")).replace(" ", "")
        if "." in equation or "->" not in equation:
            raise Refusal("Einsum with an ellipsis")
        left, result = equation.split("->")
        return self._with_iterations(node, operands, left.split(","), result)

    def _with_iterations(self, node: Node, operands: list[Value], terms: list[str], result: str) -> Value:
        """Add an Einsum whose terms have one more index, that of the iterations, where operands have it."""
        letter = next(each for each in ascii_letters if not any(each in term for term in terms))
        terms = [
            term if value.axis is None else term[: value.axis] + letter + term[value.axis :]
            for term, value in zip(terms, operands, strict=True)
        ]
        before = next(term[: term.index(letter)] for term in terms if letter in term)[-1:]
        place = result.find(before) + 1 if before else 0
        changed = {"equation": f"{','.join(terms)}->{result[:place]}{letter}{result[place:]}", "N": len(terms)}
        made = self._again(node, *(value.made for value in operands), op="Einsum", **changed)
        return Value(len(result), made, place)

    def _constant(self, value: Value) -> np.ndarray:
        if value.axis is not None or not self.make.graph.is_constant(value.made):
            raise Refusal("axes or sizes that are no constants")
        return self.make.graph.array(value.made)

    def _reduction(self, node: Node, operands: list[Value]) -> Value:
        value, old = operands[0], self._constant(operands[1])
        if value.axis is None:
            raise Refusal(f"{node.op} of what is the same in each iteration")
        axes = np.unique(old % max(value.rank, 1))
        inputs = value.made, self.make.constant("axes", (axes + (axes >= value.axis)).astype(old.dtype))
        made = self._again(node, *inputs)
        if attr(node, "keep_dims"):
            return Value(value.rank, made, value.axis)
        return Value(value.rank - axes.size, made, value.axis - int((axes < value.axis).sum()))

    def _transpose(self, node: Node, operands: list[Value]) -> Value:
        value, old = operands[0], self._constant(operands[1])
        order = old % max(value.rank, 1)
        order = np.concatenate([[value.axis], order + (order >= value.axis)]).astype(old.dtype)
        made = self._again(node, value.made, self.make.constant("perm", order))
        return Value(value.rank, made, 0)

    def _reshape(self, node: Node, operands: list[Value]) -> Value:
        old = self._constant(operands[1])
        if (old <= 0).any() and (self.count is None or (old == 0).any()):
            raise Refusal("a slice is reshaped to sizes that are not all known")
        value = self.moved(operands[0], 0)
        sizes = np.concatenate([[-1 if (old > 0).all() else self.count], old]).astype(old.dtype)
        made = self._again(node, value.made, self.make.constant("shape", sizes))
        return Value(old.size, made, 0)

    def _slice(self, node: Node, operands: list[Value]) -> Value:
        bounds = [self._constant(value) for value in operands[1:]]
        value = self.moved(operands[0], 0)
        first = [self.make.constant("bound", np.concatenate([[full], old]).astype(old.dtype))
                 for full, old in zip((0, 0, 1), bounds, strict=True)]  # fmt: skip
        names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        old_masks = {name: int(attr(node, name)) for name in names}
        masks = {name: mask << 1 | (name in names[:2]) for name, mask in old_masks.items()}
        made = self._again(node, value.made, *first, op="StridedSlice", **masks)
        added = old_masks["new_axis_mask"] & ~old_masks["ellipsis_mask"]
        removed = old_masks["shrink_axis_mask"] & ~old_masks["ellipsis_mask"] & ~added
        return Value(value.rank + added.bit_count() - removed.bit_count(), made, 0)

    def _squeeze(self, node: Node, operands: list[Value]) -> Value:
        [value] = operands
        axes = {int(axis) % max(value.rank, 1) for axis in attr(node, "squeeze_dims")}
        if not axes or value.axis is None:
            raise Refusal("Squeeze of axes that it does not name")
        axis = value.axis
        made = self._again(node, value.made, squeeze_dims=sorted(each + (each >= axis) for each in axes))
        return Value(value.rank - len(axes), made, axis - sum(each < axis for each in axes))

    def _expand(self, node: Node, operands: list[Value]) -> Value:
        value, old = operands[0], self._constant(operands[1])
        if value.axis is None:
            raise Refusal("ExpandDims of what is the same in each iteration")
        place = int(old) % (value.rank + 1)
        is_before = place < value.axis
        constant = self.make.constant("axis", np.asarray(place + (not is_before), old.dtype))
        made = self._again(node, value.made, constant)
        return Value(value.rank + 1, made, value.axis + is_before)


RULES: dict[str, Callable[[Batch, Node, list[Value]], Value]] = {
    **dict.fromkeys(REDUCTIONS, Batch._reduction),
    **dict.fromkeys(LAST_AXIS, Batch._softmax),
    **dict.fromkeys(PRODUCTS - {"Einsum"}, Batch._product),
    "Einsum": Batch._einsum,
    "ExpandDims": Batch._expand,
    "Reshape": Batch._reshape,
    "Squeeze": Batch._squeeze,
    "StridedSlice": Batch._slice,
    "Transpose": Batch._transpose,
}


def can_batch(op: str) -> bool:
    """Return whether an operation may have a form for all iterations."""
    return op in ONE_OPERAND or op in BINARY or op == "BiasAdd" or op in RULES
