"""Apply search laws: find the left-hand sides by their last nodes, and replace the results of these."""

from collections import deque
from typing import Any

from tfopt.graph.law import Maker, SearchLaw
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity, is_pure, output_types
from tfopt.graph.report import Report


def apply_search(name: str, law: SearchLaw[Any], graph: Graph, report: Report) -> int:
    """Apply a law at all nodes, and at those that it adds; return the number of firings."""
    fired = 0
    nodes = graph.of_op(*law.ops) if law.in_frames or not is_framed(graph) else []
    queue = deque(node.name for node in nodes)
    while queue:
        root = graph.nodes.get(queue.popleft())
        parts = None if root is None else law.find(graph, root)
        if root is None or parts is None:
            continue
        if isinstance(parts, str):
            report.refuse(name, root.name, parts)
            continue
        graph.touched.clear()
        make = Maker(graph, root, [])
        _replace(graph, root, law.rewrite(parts, make), make.made)
        report.fire(name, root.name)
        fired += 1
        queue += [near for near in graph.touched if near in graph.nodes and graph.nodes[near].op in law.ops]
    return fired


def _replace(graph: Graph, root: Node, results: list[Tensor], made: list[str]) -> None:
    """Replace the outputs of a node. A new node takes over its name; the readers of others read existing tensors."""
    if len(results) == 1 and results[0].node in made:
        last = graph.remove(results[0].node)
        graph.remove(root.name)
        graph.insert(Node(root.name, last.op, last.inputs, root.controls, last.attr, last.device))
    else:
        for index, result in enumerate(results):
            graph.know_shape(result, Tensor(root.name, index))
            graph.redirect(Tensor(root.name, index), result)
        graph.remove(root.name)
        if root.name in graph.fetched:
            graph.insert(identity(root.name, results[0], output_types(root)[0], root.controls, root.device))
    _drop_unread(graph, root)


def _drop_unread(graph: Graph, root: Node) -> None:
    """Remove the nodes before a replaced one that nothing reads any more."""
    queue = [tensor.node for tensor in root.inputs]
    while queue:
        node = graph.nodes.get(queue.pop())
        if node is None or node.name in graph.fed or node.name in graph.fetched or not is_pure(node):
            continue
        if not graph.readers(node.name) and not graph.waiting(node.name):
            graph.remove(node.name)
            queue += [tensor.node for tensor in node.inputs]
