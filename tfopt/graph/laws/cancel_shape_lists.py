"""Replace the shapes of several tensors by a Shape of each.

    shape_n(x, y, …)[1] = shape(y)

    before    x, y -> ShapeN -> a, b
    after     x -> Shape -> a        y -> Shape -> b

`fold_static_shapes` and `strip_unused` then see each shape alone.

Requires: no control edges, and neither a fed nor a fetched node.

Source: `MaterializeShapes` in Grappler's constant folding.
"""

from tfopt.graph.law import Maker, WholeGraphLaw
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "cancel_shape_lists"


def run(graph: Graph, report: Report) -> int:
    """Replace every ShapeN."""
    fired = 0
    for node in graph.of_op("ShapeN"):
        if reason := _refusal(graph, node):
            report.refuse(NAME, node.name, reason)
            continue
        make = Maker(graph, node, [])
        for index, tensor in enumerate(node.inputs):
            shape = make.node("Shape", tensor, like=node)
            graph.know_shape(shape, Tensor(node.name, index))
            graph.redirect(Tensor(node.name, index), shape)
        graph.remove(node.name)
        report.fire(NAME, node.name)
        fired += 1
    return fired


def _refusal(graph: Graph, node: Node) -> str | None:
    if node.name in graph.fed | graph.fetched:
        return "it is fed, or an output of the graph"
    return "it carries a control edge" if node.controls or graph.waiting(node.name) else None


LAW = WholeGraphLaw(
    run,
    requires=("direct edges",),
    before={"fold_static_shapes": "that law looks at each shape alone"},
    follows="cancel_lists",
)
