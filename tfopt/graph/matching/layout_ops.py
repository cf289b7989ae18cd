"""Layout operations, which keep the elements: move a constant operand from one side of the operation to the other.

Squeeze, ExpandDims, Transpose, Reshape
BatchToSpaceND        the end of a dilated convolution: moves and drops elements of the middle axes
SpaceToBatchND, Pad   its beginning: move elements, and add zeros
"""

import math

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Graph, Match, Op, Pattern, Tensor, attr, const, op
from tfopt.graph.matching.affine_ops import ELEMENTWISE, Affine, Floats
from tfopt.graph.matching.linear_ops import FLOATS, PLAIN, TRANSPOSED

KEEPING = ("Squeeze", "ExpandDims", "Transpose", "Reshape", "BatchToSpaceND")
MAX_DISTANCE = 8  # operations between a kernel and a layout operation


def views_of(data: Pattern) -> tuple[Op, ...]:
    """Return the patterns of all layout operations, role ``view``, with constants ``how`` and ``edges``."""
    return (
        op("Squeeze", data, role="view"),
        op("Reshape", data, "shape", role="view"),
        op(("ExpandDims", "Transpose", "Pad"), data, const("how"), role="view"),
        op(("BatchToSpaceND", "SpaceToBatchND"), data, const("how"), const("edges"), role="view"),
    )


def move(match: Match, affine: Affine, data: Tensor, *, back: bool) -> Affine | str:
    """Convert the constants of an affine operation before a layout operation to those after it, or return why not.

    Args:
        match: The match of a pattern with `views_of`.
        affine: Constants with the rank of the input of the layout operation, or of its result if ``back``.
        data: The input of the layout operation.
        back: Convert those after it to those before it.
    """
    moved = []
    for constant in affine:
        array = None if constant is None else _moved(match, constant, data, back)
        if isinstance(array, str):
            return array
        moved.append(array)
    return Affine(*moved)


def _moved(match: Match, constant: Floats, data: Tensor, back: bool) -> Floats | str:
    view, shapes = match.node("view"), (match.graph.shape(data), match.shape("view"))
    if view.op in ("Squeeze", "ExpandDims"):
        axes = _squeezed(match, data) if view.op == "Squeeze" else int(match.array("how").ravel()[0])
        if isinstance(axes, str):
            return axes
        return constant.squeeze(axes) if back == (view.op == "ExpandDims") else np.expand_dims(constant, axes)
    if view.op == "Transpose":
        order = match.array("how") % constant.ndim
        return constant.transpose(np.argsort(order) if back else order)
    if view.op == "Reshape":
        return _reshaped(constant, *(reversed(shapes) if back else shapes))
    return _same_place(match, constant)


def adds_zeros(match: Match) -> bool:
    """Return True if the result has zeros that are not in the input."""
    edges = {"Pad": "how", "SpaceToBatchND": "edges"}.get(match.node("view").op)
    return edges is not None and bool(match.array(edges).any())


def kernel_behind(graph: Graph, tensor: Tensor) -> NDArray[np.generic] | str:
    """Return the kernel of the linear operation before a tensor, or why it cannot be used."""
    for _ in range(MAX_DISTANCE):
        node = graph.nodes[tensor.node]
        if graph.uses(node.name) != 1 or node.name in graph.fetched or graph.waiting(node.name):
            return f"the {node.op} before the view is read elsewhere"
        if node.op in (*PLAIN, *TRANSPOSED):
            constant = graph.is_constant(node.inputs[1]) and graph.array(node.inputs[1]).dtype.name in FLOATS
            return graph.array(node.inputs[1]) if constant else f"the {node.op} before the view has no constant kernel"
        others = [tensor for tensor in node.inputs if not graph.is_constant(tensor)]
        if node.op not in KEEPING and (node.op not in ELEMENTWISE or len(others) != 1):
            break
        tensor = node.inputs[0] if node.op in KEEPING else others[0]
    return "there is no kernel before the view"


def _squeezed(match: Match, data: Tensor) -> tuple[int, ...] | str:
    shape, axes = match.graph.shape(data), attr(match.node("view"), "squeeze_dims")
    if shape is None or (not axes and None in shape):
        return "the shape of the squeezed tensor is not known"
    named = {axis % len(shape) for axis in axes}
    return tuple(axis for axis, size in enumerate(shape) if (axis in named if named else size == 1))


def _reshaped(constant: Floats, old: tuple[int | None, ...] | None, new: tuple[int | None, ...] | None) -> Floats | str:
    """Reshape a constant as the Reshape does with the data; the first axis is the batch and stays."""
    if not old or not new:
        return "the shapes around the Reshape are not known"
    if constant.size == 1 or (old[-1] == new[-1] and constant.size == constant.shape[-1]):
        return constant.reshape((1,) * (len(new) - 1) + (-1,))
    sizes, new_sizes = ([size or 0 for size in shape[1:]] for shape in (old, new))  # 0: unknown
    if 0 in sizes or math.prod(sizes) != math.prod(new_sizes) or constant.shape[0] != 1:
        return "the Reshape may move elements from one part of the batch to another"
    reshaped = np.broadcast_to(constant, (1, *sizes)).reshape((1, *new_sizes))
    for axis in range(reshaped.ndim):  # an axis along which it is constant gets size 1
        first = reshaped.take([0], axis)
        reshaped = first if (reshaped == first).all() else reshaped
    return reshaped


def _same_place(match: Match, constant: Floats) -> Floats | str:
    how, blocks = match.array("how"), match.node("view").op != "Pad"
    moved = (how != 1) | match.array("edges").any(1) if blocks else how.any(1)
    axes = [0, *(np.flatnonzero(moved) + 1)] if blocks else list(np.flatnonzero(moved))
    if any(constant.shape[axis] != 1 for axis in axes):
        return f"the constant varies along an axis that the {match.node('view').op} moves"
    return constant
