"""Remove nodes that no output depends on.

    before    x -> Relu -> y (an output);  x -> Sigmoid (not an output)
    after     x -> Relu -> y

Nodes that an output waits for by a control edge stay. So do fed nodes, which are part of the signature.

Source: tf.compat.v1.graph_util.extract_sub_graph.
"""

from collections.abc import Iterator

from tfopt.graph.law import Graph, Outcome, WholeGraphLaw
from tfopt.graph_def import reach


def run(graph: Graph) -> Iterator[Outcome]:
    if not graph.fetched:
        return
    ends = [name for name in [*graph.fetched, *graph.fed] if name in graph.nodes]
    needed = reach(ends, lambda name: [*graph.sources(name), *graph.nodes[name].controls])
    for name in [name for name in graph.nodes if name not in needed]:
        graph.remove(name)
        yield name, None


LAW = WholeGraphLaw(run, requires=(), ensures=("reachable",))
