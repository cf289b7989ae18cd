"""Remove a stack or concatenation of all parts of a tensor: it equals the tensor.

    pack(unpack(x)) = x        concat(split(x)) = concat(x[:2], x[2:4], …) = x

    before    x -> Split(axis 1) -> ConcatV2(axis 1) -> y
    after     x -> y

No element changes, so NaN and infinity stay.

Requires: all parts in order, along the axis along which they are joined; unless one SplitV makes the parts, they have
equal sizes.

Source: `RemoveStackSliceSameAxis` in Grappler's arithmetic optimizer does the opposite, parts of what was stacked.
"""

from tfopt.graph.law import Graph, Node, SearchLaw, Tensor, return_found
from tfopt.graph.matching.parts import joined_axis, part_of, why_not_all
from tfopt.graph.op_registry import output_types


def find(graph: Graph, stack: Node) -> list[Tensor] | str | None:
    """Return the tensor that a stack equals, in a list; None if it stacks no parts of one tensor."""
    tensors = stack.inputs if stack.op == "Pack" else stack.inputs[:-1]
    parts = [part for tensor in tensors if (part := part_of(graph, tensor)) is not None]
    if len(parts) < len(tensors) or len({part.source for part in parts}) > 1:
        return None
    if stack.name in graph.fed or stack.controls or graph.waiting(stack.name):
        return "it is fed, or carries a control edge"
    first, shape = parts[0], graph.shape(parts[0].source) or ()
    if joined_axis(graph, stack, len(shape)) != first.axis or first.is_index != (stack.op == "Pack"):
        return "the parts are joined along another axis"
    divider = graph.nodes[tensors[0].node]
    whole = [Tensor(divider.name, index) for index in range(len(output_types(divider)))]
    is_all_of_one = tensors == whole and divider.op in ("Split", "SplitV", "Unpack")
    reason = None if is_all_of_one else why_not_all(parts)
    return reason or [first.source]


LAW = SearchLaw(
    ("Pack", "ConcatV2"),
    find,
    return_found,
    after={"cancel_lists": "a part that equals an element of a list needs no comparison with the other parts"},
)
