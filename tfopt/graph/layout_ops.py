"""Operations that lay out the same elements in another way, and where a constant that meets them is before and after.

Squeeze, ExpandDims, Transpose, Reshape       as they stand
BatchToSpaceND        what a dilated convolution ends with: moves and drops elements of the axes in the middle
SpaceToBatchND, Pad   what it begins with: moves elements, and adds zeros
"""

import math

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.affine_ops import ELEMENTWISE, Floats
from tfopt.graph.linear_ops import FLOATS, PLAIN, TRANSPOSED
from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.pattern import Op, Pattern, const, op
from tfopt.graph.rewrite_rule import Match, attr

KEEPING = ("Squeeze", "ExpandDims", "Transpose", "Reshape", "BatchToSpaceND")
FURTHEST = 8  # operations between a kernel and a view


def views_of(data: Pattern) -> tuple[Op, ...]:
    """Every form, with the role ``view``; constants that say how have the role ``how``, and ``edges``."""
    return (
        op("Squeeze", data, role="view"),
        op("Reshape", data, "shape", role="view"),
        op(("ExpandDims", "Transpose", "Pad"), data, const("how"), role="view"),
        op(("BatchToSpaceND", "SpaceToBatchND"), data, const("how"), const("edges"), role="view"),
    )


def before(match: Match, constant: Floats, data: Tensor) -> Floats | str:
    """What meets the data of a view, given the constant that meets its result; or why there is no such thing.

    Args:
        match: Of a pattern with `views_of`.
        constant: As many axes as the result.
        data: What the view reads.
    """
    view, shape = match.node("view"), match.graph.shape(data)
    if view.op == "Squeeze":
        axes = _squeezed(match, data)
        return axes if isinstance(axes, str) else np.expand_dims(constant, axes)
    if view.op == "ExpandDims":
        return constant.squeeze(_new_axis(match))
    if view.op == "Transpose":
        return constant.transpose(np.argsort(match.array("how") % constant.ndim))
    if view.op == "Reshape":
        return _reshaped(constant, match.shape("view"), shape)
    return _same_place(match, constant)


def after(match: Match, constant: Floats, data: Tensor) -> Floats | str:
    """What meets the result of a view, given the constant that meets its data; or why there is no such thing.

    Args:
        match: Of a pattern with `views_of`.
        constant: As many axes as the data.
        data: What the view reads.
    """
    view, shape = match.node("view"), match.graph.shape(data)
    if view.op == "Squeeze":
        axes = _squeezed(match, data)
        return axes if isinstance(axes, str) else constant.squeeze(axes)
    if view.op == "ExpandDims":
        return np.expand_dims(constant, _new_axis(match))
    if view.op == "Transpose":
        return constant.transpose(match.array("how"))
    if view.op == "Reshape":
        return _reshaped(constant, shape, match.shape("view"))
    return _same_place(match, constant)


def adds_zeros(match: Match) -> bool:
    """Whether some elements of the result are zeros that were not in the data."""
    edges = {"Pad": "how", "SpaceToBatchND": "edges"}.get(match.node("view").op)
    return edges is not None and bool(match.array(edges).any())


def kernel_behind(graph: Graph, tensor: Tensor) -> NDArray[np.generic] | str:
    """The kernel of the linear operation behind a tensor, to which nobody else listens on the way."""
    for _ in range(FURTHEST):
        node = graph.nodes[tensor.node]
        if graph.uses(node.name) != 1 or node.name in graph.fetched or graph.waiting(node.name):
            return f"the {node.op} behind the view is read elsewhere"
        if node.op in (*PLAIN, *TRANSPOSED):
            constant = graph.is_constant(node.inputs[1]) and graph.array(node.inputs[1]).dtype.name in FLOATS
            return graph.array(node.inputs[1]) if constant else f"the {node.op} behind the view has no constant kernel"
        others = [one for one in node.inputs if not graph.is_constant(one)]
        if node.op not in KEEPING and (node.op not in ELEMENTWISE or len(others) != 1):
            break
        tensor = node.inputs[0] if node.op in KEEPING else others[0]
    return "there is no kernel behind the view"


def _squeezed(match: Match, data: Tensor) -> tuple[int, ...] | str:
    shape, axes = match.graph.shape(data), attr(match.node("view"), "squeeze_dims")
    if shape is None or (not axes and None in shape):
        return "the shape of what is squeezed is not known"
    named = {axis % len(shape) for axis in axes}
    return tuple(axis for axis, size in enumerate(shape) if (axis in named if named else size == 1))


def _new_axis(match: Match) -> int:
    return int(match.array("how").ravel()[0])


def _reshaped(constant: Floats, old: tuple[int | None, ...] | None, new: tuple[int | None, ...] | None) -> Floats | str:
    """A constant of one shape laid out in another; the first axis is the batch, and stays."""
    if not old or not new:
        return "the shapes around the Reshape are not known"
    if constant.size == 1 or (old[-1] == new[-1] and constant.size == constant.shape[-1]):
        return constant.reshape((1,) * (len(new) - 1) + (-1,))
    one, other = ([side or 0 for side in shape[1:]] for shape in (old, new))  # 0 where it is not known
    if 0 in one or math.prod(one) != math.prod(other) or constant.shape[0] != 1:
        return "the Reshape may move elements from one part of the batch to another"
    found = np.broadcast_to(constant, (1, *one)).reshape((1, *other))
    for axis in range(found.ndim):  # as few numbers as there are
        first = found.take([0], axis)
        found = first if (found == first).all() else found
    return found


def _same_place(match: Match, constant: Floats) -> Floats | str:
    how, blocks = match.array("how"), match.node("view").op != "Pad"
    moved = (how != 1) | match.array("edges").any(1) if blocks else how.any(1)
    axes = [0, *(np.flatnonzero(moved) + 1)] if blocks else list(np.flatnonzero(moved))
    if any(constant.shape[axis] != 1 for axis in axes):
        return f"the constant varies along an axis that the {match.node('view').op} moves"
    return constant
