"""Remove IdentityN nodes, whose outputs are their inputs; a reader of some outputs then needs only these inputs.

    IdentityN(x, y) = x, y

    before    x, y -> IdentityN -> Relu (of its first output)
    after     x -> Relu

TensorFlow adds them around calls with custom gradients, and for several outputs of a layer.

Requires: it is no output itself, and has no control edge into or out of it.

Source: `RemoveSplitOrConcat` and the handling of identities in Grappler (constant folding, dependency optimizer).
"""

from tfopt.graph.law import Graph, Node, SearchLaw, Tensor, return_found
from tfopt.graph.op_registry import FRAMES


def find(graph: Graph, root: Node) -> list[Tensor] | str | None:
    if root.name in graph.fed or root.name in graph.fetched:
        return "the IdentityN is an output of the graph"
    if root.controls or graph.waiting(root.name):
        return "the IdentityN carries a control edge"
    near = [graph.nodes[tensor.node] for tensor in root.inputs] + graph.readers(root.name)
    return "control flow is next to the IdentityN" if any(node.op in FRAMES for node in near) else root.inputs


LAW = SearchLaw(("IdentityN",), find, return_found, requires=("direct edges",), follows="drop_training_nodes")
