"""Remove nodes that no output depends on.

    before    x -> Relu -> y (an output);  x -> Sigmoid (not an output)
    after     x -> Relu -> y

Nodes that an output waits for by a control edge stay. So do fed nodes, which are part of the signature.

Source: tf.compat.v1.graph_util.extract_sub_graph.
"""

from tfopt.graph.law import WholeGraphLaw
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report


def run(graph: Graph, report: Report) -> int:
    """Remove nodes that no fetched or fed node depends on."""
    if not graph.fetched:
        return 0
    needed: set[str] = set()
    pending = [name for name in [*graph.fetched, *graph.fed] if name in graph.nodes]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            node = graph.nodes[name]
            pending += [*(tensor.node for tensor in node.inputs), *node.controls]
    unused = [name for name in graph.nodes if name not in needed]
    for name in unused:
        report.fire("strip_unused", name)
        graph.remove(name)
    return len(unused)


LAW = WholeGraphLaw(run, requires=(), ensures=("reachable",))
