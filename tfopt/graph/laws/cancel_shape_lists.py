"""Replace the shapes of several tensors by a Shape of each.

    shape_n(x, y, …)[1] = shape(y)

    before    x, y -> ShapeN -> a, b
    after     x -> Shape -> a        y -> Shape -> b

`fold_static_shapes` and `strip_unused` then see each shape alone.

Requires: no control edges, and neither a fed nor a fetched node.

Source: `MaterializeShapes` in Grappler's constant folding.
"""

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor


def find(graph: Graph, node: Node) -> list[Tensor] | str:
    if node.name in graph.fed | graph.fetched:
        return "it is fed, or an output of the graph"
    return "it carries a control edge" if node.controls or graph.waiting(node.name) else node.inputs


def rewrite(tensors: list[Tensor], make: Maker) -> list[Tensor]:
    return [make.node("Shape", tensor, like=make.root) for tensor in tensors]


LAW = SearchLaw(
    ("ShapeN",),
    find,
    rewrite,
    in_frames=True,
    requires=("direct edges",),
    before={"fold_static_shapes": "that law looks at each shape alone"},
    follows="cancel_lists",
)
