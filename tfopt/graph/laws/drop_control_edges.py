"""Remove control edges from nodes without effects.

    before    Const -> Identity(r);  y = Relu(x), after r
    after     Const -> Identity(r);  y = Relu(x)

Frozen variables leave such edges: other nodes had to wait for their read. The creation of a lookup table or a variable
is no effect either: nodes that use it read its handle.

Requires: neither the source of the edge nor a node before it has an effect, and none of them is control flow of version
1, where a control edge determines the branch or loop that a node belongs to.
"""

from collections.abc import Callable, Iterator

from tfopt.graph.law import Graph, Node, Outcome, WholeGraphLaw
from tfopt.graph.op_registry import is_pure

STATES = {"HashTable", "HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2"}
STATES |= {"VarHandleOp"}


def run(graph: Graph) -> Iterator[Outcome]:
    return release(graph, lambda node: is_pure(node) or node.op in STATES)


def release(graph: Graph, harmless: Callable[[Node], bool]) -> Iterator[Outcome]:
    """Remove control edges from nodes that are harmless, like all nodes before them; yield for each edge."""
    waiting = [node for node in graph.nodes.values() if node.controls]
    removable: set[str] = set()
    for name in graph.downstream() if waiting else ():
        node = graph.nodes[name]
        before = [*(tensor.node for tensor in node.inputs), *node.controls]
        if (node.op in ("Placeholder", "NoOp") or harmless(node)) and all(other in removable for other in before):
            removable.add(name)
    for node in waiting:
        remaining = [other for other in node.controls if other not in removable]
        if len(remaining) < len(node.controls):
            yield from [(node.name, None)] * (len(node.controls) - len(remaining))
            graph.wait_for(node.name, remaining)


LAW = WholeGraphLaw(
    run,
    requires=(),
    ensures=("needed control edges",),
    before={
        "drop_numeric_checks": "a node with a control edge is not dropped",
        "drop_training_nodes": "a node with a control edge is not dropped",
    },
    follows="freeze_learning_phase",
)
