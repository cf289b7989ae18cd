"""Shapes in which open sizes have names, so that equal open sizes can be recognized.

`Graph.shape` returns None for each open size. Here an open size is an axis of the tensor where it first occurs, and
operations on shapes are followed: ``[shape(x)[0] * shape(x)[1], 256]`` is known to be the shape of a reshaped x.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfopt.graph.law import Graph, Node, Tensor, attr
from tfopt.graph.matching.parts import slice_vector
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY

SAME_SHAPE = UNARY | {"BiasAdd", "Identity", "LogSoftmax", "Softmax"}
LONGEST = 8  # elements of a constant that may be a shape


@dataclass(frozen=True, slots=True)
class Size:
    """A size: a number times open sizes, each an axis of a tensor."""

    factor: int
    open: tuple[tuple[Tensor, int], ...] = ()

    def times(self, other: "Size") -> "Size":
        """Return the product of two sizes."""
        return Size(self.factor * other.factor, tuple(sorted(self.open + other.open)))

    def over(self, other: "Size") -> "Size | None":
        """Return the quotient of two sizes; None if it is not known to be a whole number."""
        left = list(self.open)
        for each in other.open:
            if each not in left:
                return None
            left.remove(each)
        if other.factor < 1 or self.factor % other.factor:
            return None
        return Size(self.factor // other.factor, tuple(left))


Sizes = tuple[Size, ...]
ONE = Size(1)


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    result = ONE
    for size in sizes:
        result = result.times(size)
    return result


class SymbolicShapes:
    """Shapes of the first outputs of all nodes, and the sizes that integer tensors contain.

    The time grows with the size of the graph, so create it only if it is needed.
    """

    def __init__(self, graph: Graph) -> None:
        """Infer all shapes."""
        self._graph = graph
        self._shapes: dict[Tensor, Sizes | None] = {}
        # a size of an integer scalar, or several of a vector; -1 is one, too
        self._values: dict[Tensor, Size | Sizes | None] = {}
        self._places: dict[str, int] = {}  # of nodes, from the inputs to the outputs
        for name in graph.downstream():
            node = graph.nodes[name]
            self._places[name] = len(self._places)
            if node.op in VALUES:
                self._values[Tensor(name)] = VALUES[node.op](self, node)
            self._shapes[Tensor(name)] = self._infer(node)
            if node.op in ("Split", "SplitV"):
                self._shapes |= self._parts(node)

    def shape(self, tensor: Tensor) -> Sizes | None:
        """Return the sizes of a tensor; None if its rank is not known."""
        return self._shapes[tensor] if tensor in self._shapes else self._static(tensor)

    def elements(self, tensor: Tensor) -> Size | None:
        """Return the number of elements of a tensor."""
        sizes = self.shape(tensor)
        return None if sizes is None else product(sizes)

    def sizes_in(self, tensor: Tensor) -> Sizes | None:
        """Return the sizes that an integer vector contains; None if they are not known."""
        value = self._values.get(tensor)
        return value if isinstance(value, tuple) else None

    def _static(self, tensor: Tensor) -> Sizes | None:
        shape = self._graph.shape(tensor)
        if shape is None:
            return None
        return tuple(Size(1, ((tensor, axis),)) if size is None else Size(size) for axis, size in enumerate(shape))

    def _infer(self, node: Node) -> Sizes | None:
        """Return the shape of the first output: inferred here, or static where that is not known."""
        tensor = Tensor(node.name)
        if self._graph.is_constant(tensor):
            return tuple(Size(dim.size) for dim in node.attr["value"].tensor.tensor_shape.dim)
        static = self._static(tensor)
        if node.name in self._graph.fed or (static is not None and not any(size.open for size in static)):
            return static
        inferred = self._inferred(node)
        if inferred is None or static is None:
            return inferred or static
        return tuple(size if not size.open else new for size, new in zip(static, inferred, strict=True))

    def _inferred(self, node: Node) -> Sizes | None:
        if node.op in SAME_SHAPE:
            return self.shape(node.inputs[0])
        if node.op in BINARY or node.op == "SelectV2":
            return self._broadcast(node, [self.shape(tensor) for tensor in node.inputs])
        if node.op in REDUCTIONS and attr(node, "keep_dims"):
            return self._reduced(node)
        return SHAPES[node.op](self, node) if node.op in SHAPES else None

    def _broadcast(self, node: Node, shapes: list[Sizes | None]) -> Sizes | None:
        ranked = [shape for shape in shapes if shape is not None]
        if len(ranked) < len(shapes):
            return None
        rank = max(map(len, ranked))
        padded = [(ONE,) * (rank - len(shape)) + shape for shape in ranked]
        result = []
        for axis, sizes in enumerate(zip(*padded, strict=True)):
            others = {size for size in sizes if size != ONE} or {ONE}
            result.append(others.pop() if len(others) == 1 else Size(1, ((Tensor(node.name), axis),)))
        return tuple(result)

    def _matrix_product(self, node: Node) -> Sizes | None:
        """Return the shape of a MatMul or BatchMatMulV2."""
        first, second = (self.shape(tensor) for tensor in node.inputs)
        if first is None or second is None or min(len(first), len(second)) < 2:
            return None
        transposed = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
        rows, columns = first[-1 if attr(node, transposed[0]) else -2], second[-2 if attr(node, transposed[1]) else -1]
        batch = self._broadcast(node, [first[:-2], second[:-2]])
        return None if batch is None else (*batch, rows, columns)

    def _einsum(self, node: Node) -> Sizes | None:
        left, _, right = attr(node, "equation").replace(" ", "").partition("->")
        shapes = [self.shape(tensor) for tensor in node.inputs]
        labels = left.split(",")
        fits = all(shape is not None and len(shape) == len(each) for each, shape in zip(labels, shapes, strict=True))
        if "." in left or not fits:
            return None
        sizes: dict[str, Size] = {}
        for each, shape in zip(labels, shapes, strict=True):
            for label, size in zip(each, shape or (), strict=True):
                sizes[label] = min(size, sizes.get(label, size), key=self._age)
        return tuple(sizes[label] for label in right)

    def _parts(self, node: Node) -> dict[Tensor, Sizes]:
        """Return the shapes of the outputs of a Split."""
        data, axis = node.inputs[::-1] if node.op == "Split" else (node.inputs[0], node.inputs[2])
        shape, place, count = self.shape(data), self._numbers(axis), attr(node, "num_split")
        if shape is None or place is None:
            return {}
        if node.op == "Split":
            part = shape[place[0]].over(Size(count))
            sizes = [] if part is None else [part] * count
        else:
            sizes = [Size(width) for width in self._numbers(node.inputs[1]) or ()]
        around = shape[: place[0] % len(shape)], shape[place[0] % len(shape) + 1 :]
        outputs = ((Tensor(node.name, index), size) for index, size in enumerate(sizes) if size.factor >= 0)
        return {tensor: (*around[0], size, *around[1]) for tensor, size in outputs}

    def _age(self, size: Size) -> int:
        """Return a key that is lowest for numbers, and lower for sizes that occur earlier."""
        return max((self._places.get(tensor.node, 0) for tensor, _ in size.open), default=-1)

    def _expanded(self, node: Node) -> Sizes | None:
        shape, axis = self.shape(node.inputs[0]), self._numbers(node.inputs[1])
        if shape is None or axis is None:
            return None
        place = axis[0] % (len(shape) + 1)
        return *shape[:place], ONE, *shape[place:]

    def _permuted(self, node: Node) -> Sizes | None:
        shape, order = self.shape(node.inputs[0]), self._numbers(node.inputs[1])
        return None if shape is None or order is None else tuple(shape[axis] for axis in order)

    def _rows(self, node: Node) -> Sizes | None:
        """Return the shape of a GatherV2 of rows."""
        table, places = (self.shape(tensor) for tensor in node.inputs[:2])
        if table is None or places is None or self._numbers(node.inputs[2]) != [0] or attr(node, "batch_dims"):
            return None
        return *places, *table[1:]

    def _reshaped(self, node: Node) -> Sizes | None:
        sizes = self.sizes_in(node.inputs[1])
        if sizes is None:
            return None
        rest = product(size for size in sizes if size.factor >= 0)
        elements = self.elements(node.inputs[0])
        left = elements.over(rest) if elements is not None and rest.factor else None
        return tuple(
            size if size.factor >= 0 else left or Size(1, ((Tensor(node.name), axis),))
            for axis, size in enumerate(sizes)
        )

    def _reduced(self, node: Node) -> Sizes | None:
        shape, axes = self.shape(node.inputs[0]), self._numbers(node.inputs[1])
        if shape is None or axes is None:
            return None
        reduced = {axis % max(len(shape), 1) for axis in axes}
        return tuple(ONE if axis in reduced else size for axis, size in enumerate(shape))

    def _numbers(self, tensor: Tensor) -> list[int] | None:
        """Return the value of a short integer constant."""
        if not self._graph.is_constant(tensor):
            return None
        shape = self._graph.nodes[tensor.node].attr["value"].tensor.tensor_shape.dim
        if len(shape) > 1 or math.prod(dim.size for dim in shape) > LONGEST:
            return None
        array = self._graph.array(tensor)
        return [int(number) for number in array.ravel()] if array.dtype.kind in "iu" else None

    def _constant(self, node: Node) -> Size | Sizes | None:
        numbers = self._numbers(Tensor(node.name))
        if numbers is None:
            return None
        is_vector = len(node.attr["value"].tensor.tensor_shape.dim) == 1
        return tuple(map(Size, numbers)) if is_vector else Size(numbers[0])

    def _gathered(self, node: Node) -> Size | Sizes | None:
        vector, places = self.sizes_in(node.inputs[0]), self._values.get(node.inputs[1])
        if vector is None or places is None or self._numbers(node.inputs[2]) != [0]:
            return None
        numbers = [place.factor for place in (places if isinstance(places, tuple) else (places,)) if not place.open]
        if any(not 0 <= number < len(vector) for number in numbers):
            return None
        if isinstance(places, tuple):
            return tuple(vector[number] for number in numbers) if len(numbers) == len(places) else None
        return vector[numbers[0]] if numbers else None

    def _sliced(self, node: Node) -> Size | Sizes | None:
        vector, bounds = self.sizes_in(node.inputs[0]), [self._numbers(tensor) for tensor in node.inputs[1:]]
        masked = attr(node, "ellipsis_mask") or attr(node, "new_axis_mask")
        if vector is None or masked or any(bound is None or len(bound) != 1 for bound in bounds):
            return None
        part: Size | Sizes | None = slice_vector(node, vector, *(bound[0] for bound in bounds if bound))
        return part

    def _multiplied(self, node: Node) -> Size | None:
        vector = self.sizes_in(node.inputs[0])
        return None if vector is None or attr(node, "keep_dims") else product(vector)

    def _times(self, node: Node) -> Size | None:
        one, other = (self._values.get(tensor) for tensor in node.inputs)
        return one.times(other) if isinstance(one, Size) and isinstance(other, Size) else None

    def _packed(self, node: Node) -> Sizes | None:
        values = [self._values.get(tensor) for tensor in node.inputs]
        sizes = tuple(value for value in values if isinstance(value, Size))
        return sizes if len(sizes) == len(values) else None

    def _joined(self, node: Node) -> Sizes | None:
        vectors = [self.sizes_in(tensor) for tensor in node.inputs[:-1]]
        sizes = tuple(size for vector in vectors if vector is not None for size in vector)
        return None if None in vectors else sizes

    def _single(self, node: Node) -> Size | Sizes | None:
        """Return the value of a Squeeze, which makes a scalar of one size."""
        vector = self.sizes_in(node.inputs[0])
        return vector[0] if vector is not None and len(vector) == 1 else None


SHAPES: dict[str, Callable[[SymbolicShapes, Node], Sizes | None]] = {
    "BatchMatMulV2": SymbolicShapes._matrix_product,
    "Einsum": SymbolicShapes._einsum,
    "ExpandDims": SymbolicShapes._expanded,
    "Fill": lambda shapes, node: shapes.sizes_in(node.inputs[0]),
    "GatherV2": SymbolicShapes._rows,
    "MatMul": SymbolicShapes._matrix_product,
    "Reshape": SymbolicShapes._reshaped,
    "Transpose": SymbolicShapes._permuted,
}
VALUES: dict[str, Callable[[SymbolicShapes, Node], Any]] = {
    "Cast": lambda shapes, node: shapes._values.get(node.inputs[0]),
    "ConcatV2": SymbolicShapes._joined,
    "Const": SymbolicShapes._constant,
    "GatherV2": SymbolicShapes._gathered,
    "Identity": lambda shapes, node: shapes._values.get(node.inputs[0]),
    "Mul": SymbolicShapes._times,
    "Pack": SymbolicShapes._packed,
    "Prod": SymbolicShapes._multiplied,
    "Shape": lambda shapes, node: shapes.shape(node.inputs[0]),
    "Squeeze": SymbolicShapes._single,
    "StridedSlice": SymbolicShapes._sliced,
}
