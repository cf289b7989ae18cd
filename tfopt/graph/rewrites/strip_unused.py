"""What no output is computed from goes.

    before    x -> Relu -> y (asked for);  x -> Sigmoid (asked for by nobody)
    after     x -> Relu -> y

What an output waits for by a control edge stays, and so does what is fed from outside: it is part of the signature.
Reference: tf.compat.v1.graph_util.extract_sub_graph.
"""

from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole


def run(graph: Graph, report: Report) -> int:
    """Remove what cannot be reached from what is asked for or fed."""
    if not graph.fetched:
        return 0
    needed: set[str] = set()
    ahead = [name for name in [*graph.fetched, *graph.fed] if name in graph.nodes]
    while ahead:
        name = ahead.pop()
        if name not in needed:
            needed.add(name)
            node = graph.nodes[name]
            ahead += [*(tensor.node for tensor in node.inputs), *node.controls]
    unused = [name for name in graph.nodes if name not in needed]
    for name in unused:
        report.fire("strip_unused", name)
        graph.remove(name)
    return len(unused)


LAW = Whole(run, ensures=("reachable",))
