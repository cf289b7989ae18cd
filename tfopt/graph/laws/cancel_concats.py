"""Slice the element of a concatenation that a slice lies in, instead of the concatenation.

    concat(x, y, …)[a : b] = y[a - n : b - n]        where x has n elements along the axis

    before    x, y -> ConcatV2 -> StridedSlice(a, b) -> z
    after     y -> StridedSlice(a - n, b - n) -> z

`drop_whole_slices` removes a slice of a whole element, and `strip_unused` a concatenation that nothing reads.

Requires: a constant axis and constant bounds, with stride 1 along the axis; the sizes of the element and
of the elements before it along the axis.
"""

from typing import NamedTuple

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor, attr
from tfopt.graph.matching.parts import range_along, size_along


class Cut(NamedTuple):
    """An element of a concatenation, and the first and last index of a slice of it along the axis."""

    element: Tensor
    axis: int
    begin: int
    end: int


def find(graph: Graph, part: Node) -> Cut | str | None:
    made = graph.nodes[part.inputs[0].node]
    if made.op != "ConcatV2" or {part.name, made.name} & graph.fed:
        return None
    bounds = [*part.inputs[1:], made.inputs[-1]]
    if made.controls or any(graph.nodes[bound.node].controls for bound in bounds):
        return "it carries a control edge"
    if not all(map(graph.is_constant, bounds)):
        return "the axis or a bound is not a constant"
    shape = graph.shape(Tensor(made.name))
    if shape is None:
        return "the rank is not known"
    axis = int(graph.array(made.inputs[-1])) % len(shape)
    return _stride_refusal(graph, part, axis) or _cut(graph, part, made, axis)


def rewrite(cut: Cut, make: Maker) -> list[Tensor]:
    part, axis = make.root, cut.axis
    begins, ends = (make.graph.array(tensor).copy() for tensor in part.inputs[1:3])
    begins[axis], ends[axis] = cut.begin, cut.end - (cut.begin if part.op == "Slice" else 0)
    bounds = [make.constant("begin", begins), make.constant("end", ends), *part.inputs[3:]]
    names = ("begin_mask", "end_mask") if part.op == "StridedSlice" else ()
    masks = {name: attr(part, name) & ~(1 << axis) for name in names}
    return [make.node(part.op, cut.element, *bounds, like=part, **masks)]


def _stride_refusal(graph: Graph, part: Node, axis: int) -> str | None:
    if part.op == "Slice":
        return None
    if attr(part, "ellipsis_mask") or attr(part, "new_axis_mask"):
        return "the slice has an ellipsis or a new axis"
    strides = graph.array(part.inputs[3])
    if axis >= len(strides):
        return "all of the axis is read"
    return None if strides[axis] == 1 else "elements are left out, or reversed"


def _cut(graph: Graph, part: Node, made: Node, axis: int) -> Cut | str:
    begin, end = range_along(graph, part, axis, size_along(graph, Tensor(made.name), axis)) or (0, None)
    if end is None:
        return "a bound is not known"
    offset = 0
    for element in made.inputs[:-1]:
        size = size_along(graph, element, axis)
        if size is None:
            return "the size of an element is not known"
        if offset <= begin < end <= offset + size:
            return Cut(element, axis, begin - offset, end - offset)
        offset += size
    return "it reads several elements, or none"


LAW = SearchLaw(
    ("StridedSlice", "Slice"),
    find,
    rewrite,
    after={"cancel_lists": "a part that equals an element needs no slice"},
    before={"drop_whole_slices": "a slice of a whole element is one of all elements then"},
)
