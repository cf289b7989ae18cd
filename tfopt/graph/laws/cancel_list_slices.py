"""Remove slices of one element of a stack: they equal the element with an axis of size 1, or without one.

    pack(x, y, …)[1:2] = split(pack(x, y, …))[1] = expand_dims(y)        gather(pack(x, y, …), 1) = y

    before    x, y -> Pack(axis 0) -> Slice(1, size 1) -> z
    after     y -> ExpandDims(0) -> z

`cancel_lists` does the same for an index of a StridedSlice, and for Unpack.

Requires: the axis of the stack; a constant index.

Source: `RemoveStackSliceSameAxis` in Grappler's arithmetic optimizer.
"""

import numpy as np

from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.parts import Part, part_of
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, output_types
from tfopt.graph.report import Report

NAME = "cancel_list_slices"
SLICES = ("StridedSlice", "Slice", "GatherV2", "Split", "SplitV")


def run(graph: Graph, report: Report) -> int:
    """Make the readers of every such slice read the element."""
    fired = 0
    for node in graph.of_op(*SLICES) if not is_framed(graph) else ():
        made = graph.nodes[node.inputs[1 if node.op == "Split" else 0].node]
        if made.op != "Pack" or (node.op == "StridedSlice" and attr(node, "shrink_axis_mask")):
            continue
        parts = _parts(graph, node, made)
        if isinstance(parts, str):
            report.refuse(NAME, node.name, parts)
            continue
        _replace(graph, node, made, parts)
        report.fire(NAME, node.name)
        fired += 1
    return fired


def _parts(graph: Graph, node: Node, made: Node) -> list[Part] | str:
    """Return the parts of a stack that the outputs of a node are, or why they are no elements."""
    types = output_types(node)
    if {node.name, made.name} & graph.fed or (node.name in graph.fetched and len(types) > 1):
        return "it is fed, or an output of the graph with several tensors"
    if node.controls or graph.waiting(node.name) or made.controls:
        return "it carries a control edge"
    parts = [part for index in range(len(types)) if (part := part_of(graph, Tensor(node.name, index))) is not None]
    shape = graph.shape(Tensor(made.name)) or ()
    if len(parts) < len(types) or any(part.axis != attr(made, "axis") % max(len(shape), 1) for part in parts):
        return "it is cut along another axis, or at places that are not known"
    return parts if all(part.total == len(made.inputs) for part in parts) else "a slice has several elements"


def _replace(graph: Graph, node: Node, made: Node, parts: list[Part]) -> None:
    make = Maker(graph, node, [])
    for index, part in enumerate(parts):
        element = made.inputs[part.number]
        if not part.is_index:
            axis = make.constant("axis", np.asarray(part.axis, np.int32))
            kind = graph.nodes[axis.node].attr["dtype"].type
            element = make.node("ExpandDims", element, axis, like=made, Tdim=kind)
        graph.redirect(Tensor(node.name, index), element)
        last = element
    graph.remove(node.name)
    if node.name in graph.fetched:
        graph.insert(identity(node.name, last, output_types(node)[0], (), node.device))


LAW = WholeGraphLaw(run, requires=("direct edges", "folded constants"), follows="cancel_lists")
