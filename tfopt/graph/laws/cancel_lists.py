"""Remove parts that are taken from a list of tensors: they equal an element of the list.

    pack(x, y, …)[1] = unpack(pack(x, y, …))[1] = y        split(concat(x, y, …))[1] = y

    before    x, y -> Pack(axis 0) -> StridedSlice(1) -> z
    after     y -> z

Requires: the axis of the list, and constant indices; for Split, parts with the static sizes of the elements.

Source: `RemoveStackSliceSameAxis` in Grappler's arithmetic optimizer.
"""

from tfopt.graph.law import WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, output_types
from tfopt.graph.report import Report

NAME = "cancel_lists"
PARTS = {"StridedSlice": "Pack", "Unpack": "Pack", "Split": "ConcatV2", "SplitV": "ConcatV2"}


def run(graph: Graph, report: Report) -> int:
    """Make the readers of parts read the elements."""
    fired = 0
    for part in graph.of_op(*PARTS) if not is_framed(graph) else ():
        data = part.inputs[1 if part.op == "Split" else 0]
        made = graph.nodes[data.node]
        if made.op != PARTS[part.op]:
            continue
        elements = _refusal(graph, part, made) or _elements(graph, part, made)
        if isinstance(elements, str):
            report.refuse(NAME, part.name, elements)
            continue
        for index, element in enumerate(elements):
            graph.know_shape(element, Tensor(part.name, index))
            graph.redirect(Tensor(part.name, index), element)
        graph.remove(part.name)
        if part.name in graph.fetched:
            graph.insert(identity(part.name, elements[0], output_types(part)[0], (), part.device))
        report.fire(NAME, part.name)
        fired += 1
    return fired


def _refusal(graph: Graph, part: Node, made: Node) -> str | None:
    if {part.name, made.name} & graph.fed or (part.name in graph.fetched and len(output_types(part)) > 1):
        return "it is fed, or an output of the graph with several tensors"
    if part.controls or graph.waiting(part.name) or made.controls:
        return "it carries a control edge"
    return None


def _elements(graph: Graph, part: Node, made: Node) -> list[Tensor] | str:
    """Return the element that each output equals, or why it equals none."""
    shape = graph.shape(Tensor(made.name))
    if shape is None:
        return "the rank is not known"
    if made.op == "Pack":
        axis, others = attr(made, "axis") % len(shape), made.inputs
        if part.op == "Unpack":
            return others if attr(part, "axis") % len(shape) == axis else "it is cut along another axis"
        return _sliced(graph, part, others, axis)
    if not graph.is_constant(made.inputs[-1]) or not graph.is_constant(part.inputs[0 if part.op == "Split" else 2]):
        return "the axis is not a constant"
    axis, cut = (
        int(graph.array(tensor)) % len(shape)
        for tensor in (made.inputs[-1], part.inputs[0 if part.op == "Split" else 2])
    )
    others = made.inputs[:-1]
    sizes = [(graph.shape(tensor) or {axis: None})[axis] for tensor in others]
    parts = [(graph.shape(Tensor(part.name, index)) or {axis: None})[axis] for index in range(len(output_types(part)))]
    same = axis == cut and None not in sizes and sizes == parts
    return others if same else "the parts may differ from the elements"


def _sliced(graph: Graph, part: Node, elements: list[Tensor], axis: int) -> list[Tensor] | str:
    """Return the element that a StridedSlice selects."""
    if not all(map(graph.is_constant, part.inputs[1:])):
        return "the index is not a constant"
    if attr(part, "ellipsis_mask") or attr(part, "new_axis_mask") or attr(part, "shrink_axis_mask") != 1 << axis:
        return "it does not select one element"
    begin, _, strides = (graph.array(tensor) for tensor in part.inputs[1:])
    others = sum(1 << index for index in range(len(begin)) if index != axis)
    if others & ~(attr(part, "begin_mask") & attr(part, "end_mask")) or (strides != 1).any():
        return "it may leave out a part of the element"
    if (attr(part, "begin_mask") >> axis) & 1 or not -len(elements) <= begin[axis] < len(elements):
        return "the index is open or out of range"
    return [elements[int(begin[axis])]]


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    after={"fold_constants": "indices are constants then"},
    follows="fuse_transposes_into_reductions",
)
