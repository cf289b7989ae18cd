"""Nothing waits for a check: where it would have held, the answers are the same.

    before    Assert(x > 0) -> y = Relu(x), after Assert
    after     y = Relu(x)

With `drop_numeric_checks` the end of checks in a served model: inputs that the model refused before it answers now.
Whoever wants them kept leaves both out. Takes Assert and an If of which a branch does nothing but that, as TensorFlow 2
writes it. Needs: neither the check nor anything before it has another effect, since what waits for the check waits for
that as well.
"""

from collections.abc import Mapping
from typing import Any

from tfopt.graph.mutable_graph import Graph, Node
from tfopt.graph.op_registry import is_pure
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole, attr
from tfopt.graph.rewrites.drop_control_edges import release

BRANCHES = ("then_branch", "else_branch")


def run(graph: Graph, report: Report) -> int:
    """Remove control edges from checks, and from what is read by them alone."""
    bodies = {function.signature.name: function for function in graph.library.function}
    return release(graph, report, "drop_assertions", lambda node: is_pure(node) or _is_check(node, bodies))


def _is_check(node: Node, bodies: Mapping[str, Any]) -> bool:
    if node.op not in ("If", "StatelessIf"):
        return node.op == "Assert"
    inner = [one for branch in BRANCHES for one in bodies[attr(node, branch).name].node_def]
    return all(one.op in ("Assert", "NoOp") or is_pure(Node(one.name, one.op, [], [], one.attr)) for one in inner)


LAW = Whole(run)
