"""Remove slices of one element of a stack: they equal the element with an axis of size 1, or without one.

    pack(x, y, …)[1:2] = split(pack(x, y, …))[1] = expand_dims(y)        gather(pack(x, y, …), 1) = y

    before    x, y -> Pack(axis 0) -> Slice(1, size 1) -> z
    after     y -> ExpandDims(0) -> z

`cancel_lists` does the same for an index of a StridedSlice, and for Unpack.

Requires: the axis of the stack; a constant index.

Source: `RemoveStackSliceSameAxis` in Grappler's arithmetic optimizer.
"""

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor, attr
from tfopt.graph.laws.cancel_lists import edge_refusal
from tfopt.graph.matching.parts import Part, joined_axis, part_of
from tfopt.graph.op_registry import output_types


def find(graph: Graph, node: Node) -> list[Part] | str | None:
    made = graph.nodes[node.inputs[1 if node.op == "Split" else 0].node]
    if made.op != "Pack" or (node.op == "StridedSlice" and attr(node, "shrink_axis_mask")):
        return None
    return edge_refusal(graph, node, made) or _parts(graph, node, made)


def rewrite(parts: list[Part], make: Maker) -> list[Tensor]:
    stack = make.graph.nodes[parts[0].source.node]
    elements = ((part, stack.inputs[part.number]) for part in parts)
    return [element if part.is_index else make.expand(element, part.axis, stack) for part, element in elements]


def _parts(graph: Graph, node: Node, made: Node) -> list[Part] | str:
    count, shape = len(output_types(node)), graph.shape(Tensor(made.name)) or ()
    parts = [part for index in range(count) if (part := part_of(graph, Tensor(node.name, index))) is not None]
    if len(parts) < count or any(part.axis != joined_axis(graph, made, len(shape)) for part in parts):
        return "it is cut along another axis, or at places that are not known"
    return parts if all(part.total == len(made.inputs) for part in parts) else "a slice has several elements"


LAW = SearchLaw(("StridedSlice", "Slice", "GatherV2", "Split", "SplitV"), find, rewrite, follows="cancel_lists")
