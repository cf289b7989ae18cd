"""Remove parts that are taken from a list of tensors: they equal an element of the list.

    pack(x, y, …)[1] = unpack(pack(x, y, …))[1] = y        split(concat(x, y, …))[1] = y

    before    x, y -> Pack(axis 0) -> StridedSlice(1) -> z
    after     y -> z

Requires: the axis of the list, and constant indices; for Split, parts with the static sizes of the elements.

Source: `RemoveStackSliceSameAxis` in Grappler's arithmetic optimizer.
"""

from tfopt.graph.law import Graph, Node, SearchLaw, Tensor, return_found
from tfopt.graph.matching.parts import joined_axis, part_of, size_along
from tfopt.graph.op_registry import output_types

PARTS = {"StridedSlice": "Pack", "Unpack": "Pack", "Split": "ConcatV2", "SplitV": "ConcatV2"}


def find(graph: Graph, part: Node) -> list[Tensor] | str | None:
    made = graph.nodes[part.inputs[1 if part.op == "Split" else 0].node]
    if made.op != PARTS[part.op]:
        return None
    shape = graph.shape(Tensor(made.name))
    if reason := edge_refusal(graph, part, made) or ("the rank is not known" if shape is None else None):
        return reason
    elements = _stacked if made.op == "Pack" else _concatenated
    return elements(graph, part, made, len(shape or ()))


def edge_refusal(graph: Graph, part: Node, made: Node) -> str | None:
    """Return why no other tensors can replace the outputs of a node that divides a list, or None."""
    if {part.name, made.name} & graph.fed or (part.name in graph.fetched and len(output_types(part)) > 1):
        return "it is fed, or an output of the graph with several tensors"
    if part.controls or graph.waiting(part.name) or made.controls:
        return "it carries a control edge"
    return None


def _stacked(graph: Graph, part: Node, made: Node, rank: int) -> list[Tensor] | str:
    elements, axis = [], joined_axis(graph, made, rank)
    for index in range(len(output_types(part))):
        each = part_of(graph, Tensor(part.name, index))
        if each is None:
            return "the index is not known, or it may leave out a part of the element"
        if each.axis != axis or not each.is_index:
            return "it is cut along another axis" if part.op == "Unpack" else "it does not select one element"
        elements.append(made.inputs[each.number])
    return elements


def _concatenated(graph: Graph, part: Node, made: Node, rank: int) -> list[Tensor] | str:
    axes = [made.inputs[-1], part.inputs[0 if part.op == "Split" else 2]]
    if not all(map(graph.is_constant, axes)):
        return "the axis is not a constant"
    axis, cut = (int(graph.array(tensor)) % rank for tensor in axes)
    elements = made.inputs[:-1]
    sizes = [size_along(graph, tensor, axis) for tensor in elements]
    parts = [size_along(graph, Tensor(part.name, index), axis) for index in range(len(output_types(part)))]
    same = axis == cut and None not in sizes and sizes == parts
    return elements if same else "the parts may differ from the elements"


LAW = SearchLaw(
    tuple(PARTS),
    find,
    return_found,
    after={"fold_constants": "indices are constants then"},
)
