"""Waiting for what has no effect is waiting for nothing.

    before    Const -> Identity(r);  y = Relu(x), after r
    after     Const -> Identity(r);  y = Relu(x)

A frozen variable leaves such edges behind: everything waited for its read. Needs: neither the node waited for nor
anything before it has an effect, and none of them is control flow of version 1, where a control edge says in which
branch or loop a node lives.
"""

from tfopt.graph.operations import is_pure
from tfopt.graph.report import Report
from tfopt.graph.rule import Whole
from tfopt.graph.view import Graph


def run(graph: Graph, report: Report) -> int:
    """Remove control edges from nodes that nothing with an effect comes before."""
    pure: set[str] = set()
    for name in graph.downstream():
        node = graph.nodes[name]
        before = [*(tensor.node for tensor in node.inputs), *node.controls]
        if (node.op in ("Placeholder", "NoOp") or is_pure(node)) and all(other in pure for other in before):
            pure.add(name)
    fired = 0
    for node in list(graph.nodes.values()):
        kept = [other for other in node.controls if other not in pure]
        if len(kept) < len(node.controls):
            report.fire("drop_control_edges", node.name, len(node.controls) - len(kept))
            fired += len(node.controls) - len(kept)
            graph.wait_for(node.name, kept)
    return fired


LAW = Whole(run, ensures=("needed control edges",))
