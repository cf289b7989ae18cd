"""Find out if the nodes in between, which a match would remove, are needed elsewhere."""

from collections.abc import Iterable

from tfopt.graph.law import Match
from tfopt.graph.mutable_graph import Graph, Node


def inner_refusal(match: Match) -> str | None:
    """Return why nodes of a match other than its root cannot be removed, or None; they may read each other."""
    graph, root = match.graph, match.node()
    names = {node.name for node in match.binding.nodes.values()}
    for node in match.binding.nodes.values():
        if node is root:
            continue
        if _is_held(graph, node):
            return "a part is an output of the graph as well, fed, or has control edges"
        if any(reader.name not in names for reader in graph.readers(node.name)):
            return "something else reads a part"
    return None


def product_refusal(graph: Graph, nodes: Iterable[Node]) -> str | None:
    """Return why products, or operations after them, are read by more than one node of a match, or None."""
    for node in nodes:
        if _is_held(graph, node):
            return "a product is an output of the graph as well, fed from outside, or carries a control edge"
        if graph.uses(node.name) != 1:
            return f"a product has {graph.uses(node.name)} consumers"
    return None


def _is_held(graph: Graph, node: Node) -> bool:
    is_end = node.name in graph.fetched or node.name in graph.fed
    return is_end or bool(node.controls) or bool(graph.waiting(node.name))
