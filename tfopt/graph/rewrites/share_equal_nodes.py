"""Equal expressions are computed once, and equal constants are kept once.

    before    Relu(x) -> y;  Relu(x) -> z
    after     Relu(x) -> y, z

Two nodes are equal when operation, attributes, device, inputs and control edges are, the inputs of a sum or a product
in any order; a constant is its value. It stands after every fold, since a fold needs what it changes to have one
consumer. Needs: no effects, and nothing random.
"""

import hashlib

from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import is_pure, output_types
from tfopt.graph.pattern import COMMUTING
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole

NOTES = {"_output_shapes", "_has_manual_control_dependencies"}  # what a node remembers, not what it does


def run(graph: Graph, report: Report) -> int:
    """Give the readers of a node those of an equal one that comes before."""
    first: dict[bytes, str] = {}
    fired = 0
    for name in list(graph.downstream()):
        node = graph.nodes[name]
        if name in graph.fed or not is_pure(node):
            continue
        key = _key(node)
        known = first.setdefault(key, name)
        if known == name or {known, name} <= graph.fetched:
            continue
        if name in graph.fetched:  # which keeps its name: the one before goes
            first[key], name, known = name, known, name
        for index in range(max(1, len(output_types(node)))):
            graph.redirect(Tensor(name, index), Tensor(known, index))
        for other in graph.waiting(name):
            graph.wait_for(other.name, [known if control == name else control for control in other.controls])
        graph.remove(name)
        report.fire("share_equal_nodes", name)
        fired += 1
    return fired


def _key(node: Node) -> bytes:
    inputs = sorted(node.inputs) if node.op in COMMUTING else node.inputs
    found = hashlib.sha256(repr((node.op, inputs, sorted(node.controls), node.device)).encode())
    for key in sorted(node.attr):
        if key not in NOTES:
            found.update(key.encode() + node.attr[key].SerializeToString(deterministic=True))
    return found.digest()


LAW = Whole(run, ensures=("no equal nodes",))
