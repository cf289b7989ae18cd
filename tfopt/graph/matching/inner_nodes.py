"""Find out if the nodes in between, which a match would remove, are needed elsewhere."""

from tfopt.graph.law import Match


def inner_refusal(match: Match) -> str | None:
    """Return why nodes of a match other than its root cannot be removed, or None; they may read each other."""
    graph, root = match.graph, match.node()
    names = {node.name for node in match.binding.nodes.values()}
    for node in match.binding.nodes.values():
        if node is root:
            continue
        if node.name in graph.fetched or node.name in graph.fed or node.controls or graph.waiting(node.name):
            return "a part is an output of the graph as well, fed, or has control edges"
        if any(reader.name not in names for reader in graph.readers(node.name)):
            return "something else reads a part"
    return None
