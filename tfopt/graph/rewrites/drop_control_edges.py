"""Waiting for what has no effect is waiting for nothing.

    before    Const -> Identity(r);  y = Relu(x), after r
    after     Const -> Identity(r);  y = Relu(x)

A frozen variable leaves such edges behind: everything waited for its read. Needs: neither the node waited for nor
anything before it has an effect, and none of them is control flow of version 1, where a control edge says in which
branch or loop a node lives.
"""

from collections.abc import Callable

from tfopt.graph.mutable_graph import Graph, Node
from tfopt.graph.op_registry import is_pure
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole


def run(graph: Graph, report: Report) -> int:
    """Remove control edges from nodes that nothing with an effect comes before."""
    return release(graph, report, "drop_control_edges", is_pure)


def release(graph: Graph, report: Report, law: str, harmless: Callable[[Node], bool]) -> int:
    """Remove control edges from nodes that are harmless, as is all that comes before; return how many there were."""
    waiting = [node for node in graph.nodes.values() if node.controls]
    found: set[str] = set()
    for name in graph.downstream() if waiting else ():
        node = graph.nodes[name]
        before = [*(tensor.node for tensor in node.inputs), *node.controls]
        if (node.op in ("Placeholder", "NoOp") or harmless(node)) and all(other in found for other in before):
            found.add(name)
    fired = 0
    for node in waiting:
        kept = [other for other in node.controls if other not in found]
        if len(kept) < len(node.controls):
            report.fire(law, node.name, len(node.controls) - len(kept))
            fired += len(node.controls) - len(kept)
            graph.wait_for(node.name, kept)
    return fired


LAW = Whole(run, ensures=("needed control edges",))
