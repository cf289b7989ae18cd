"""Slice the element of a concatenation that a slice lies in, instead of the concatenation.

    concat(x, y, …)[a : b] = y[a - n : b - n]        where x has n elements along the axis

    before    x, y -> ConcatV2 -> StridedSlice(a, b) -> z
    after     y -> StridedSlice(a - n, b - n) -> z

`drop_whole_slices` removes a slice of a whole element, and `strip_unused` a concatenation that nothing reads.

Requires: a constant axis and constant bounds, with stride 1 along the axis; the sizes of the element and
of the elements before it along the axis.
"""

from dataclasses import replace

import numpy as np

from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "cancel_concats"


def run(graph: Graph, report: Report) -> int:
    """Replace every such slice."""
    fired = 0
    for part in graph.of_op("StridedSlice", "Slice") if not is_framed(graph) else ():
        made = graph.nodes[part.inputs[0].node]
        if made.op != "ConcatV2" or {part.name, made.name} & graph.fed:
            continue
        reason = _refusal(graph, part, made)
        axis, begin, end = (0, 0, 0) if reason else _range(graph, part, made)
        reason = reason or _replace(graph, part, made, axis, begin, end)
        if reason:
            report.refuse(NAME, part.name, reason)
            continue
        report.fire(NAME, part.name)
        fired += 1
    return fired


def _refusal(graph: Graph, part: Node, made: Node) -> str | None:
    bounds = [*part.inputs[1:], made.inputs[-1]]
    if made.controls or any(graph.nodes[bound.node].controls for bound in bounds):
        return "it carries a control edge"
    if not all(map(graph.is_constant, bounds)):
        return "the axis or a bound is not a constant"
    shape = graph.shape(Tensor(made.name))
    if shape is None:
        return "the rank is not known"
    if part.op == "Slice":
        return None
    if attr(part, "ellipsis_mask") or attr(part, "new_axis_mask"):
        return "the slice has an ellipsis or a new axis"
    axis = int(graph.array(made.inputs[-1])) % len(shape)
    strides = graph.array(part.inputs[3])
    if axis >= len(strides):
        return "all of the axis is read"
    return None if strides[axis] == 1 else "elements are left out, or reversed"


def _range(graph: Graph, part: Node, made: Node) -> tuple[int, int | None, int | None]:
    """Return the axis, and the first and last index along it; None for one that is open or not known."""
    shape = graph.shape(Tensor(made.name)) or ()
    axis = int(graph.array(made.inputs[-1])) % len(shape)
    first, last = (int(graph.array(tensor)[axis]) for tensor in part.inputs[1:3])
    size = shape[axis]
    if part.op == "Slice":
        return axis, first, size if last == -1 else first + last
    if attr(part, "shrink_axis_mask") >> axis & 1:
        last = first + 1 if first != -1 else size or 0
    begin: int | None = 0 if attr(part, "begin_mask") >> axis & 1 else first
    end: int | None = size if attr(part, "end_mask") >> axis & 1 else last
    return axis, _counted(begin, size), _counted(end, size)


def _counted(index: int | None, size: int | None) -> int | None:
    """Return an index from the start, within the size if that is known."""
    if index is None or (index < 0 and size is None):
        return None
    return min(max(index + (size or 0) if index < 0 else index, 0), index if size is None else size)


def _replace(graph: Graph, part: Node, made: Node, axis: int, begin: int | None, end: int | None) -> str | None:
    """Slice the element instead, or return why there is none that contains the range."""
    if begin is None or end is None:
        return "a bound is not known"
    offset = 0
    for element in made.inputs[:-1]:
        size = (graph.shape(element) or {axis: None})[axis]
        if size is None:
            return "the size of an element is not known"
        if offset <= begin < end <= offset + size:
            break
        offset += size
    else:
        return "it reads several elements, or none"
    make = Maker(graph, part, [])
    bounds = [graph.array(tensor).copy() for tensor in part.inputs[1:3]]
    bounds[0][axis] = begin - offset
    bounds[1][axis] = end - begin if part.op == "Slice" else end - offset
    constants = [make.constant(role, np.asarray(array)) for role, array in zip(("begin", "end"), bounds, strict=True)]
    attributes = dict(part.attr)
    for mask in ("begin_mask", "end_mask") if part.op == "StridedSlice" else ():
        value = type(part.attr[mask])() if mask in part.attr else None
        if value is not None:
            value.i = attr(part, mask) & ~(1 << axis)
            attributes[mask] = value
    graph.remove(part.name)
    graph.insert(replace(part, inputs=[element, *constants, *part.inputs[3:]], attr=attributes))
    if not graph.uses(made.name) and made.name not in graph.fetched and not graph.waiting(made.name):
        graph.remove(made.name)
    return None


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    after={"cancel_lists": "a part that equals an element needs no slice"},
    before={"drop_whole_slices": "a slice of a whole element is one of all elements then"},
    follows="cancel_shape_lists",
)
