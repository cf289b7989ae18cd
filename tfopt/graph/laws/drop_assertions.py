"""Remove control edges from assertions, so that they are no longer run.

    before    Assert(x > 0) -> y = Relu(x), after Assert
    after     y = Relu(x)

If the assertion holds, the outputs are the same. With `drop_numeric_checks` this removes the checks of a served model:
inputs that the model rejected before now have outputs. Leave both laws out to retain the checks. It applies to Assert,
and to an If with a branch that contains only an Assert, as TensorFlow 2 writes it.

Requires: neither the assertion nor a node before it has another effect, because readers of the edge wait for it too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tfopt.graph.law import Graph, Node, Outcome, WholeGraphLaw, attr
from tfopt.graph.laws.drop_control_edges import release
from tfopt.graph.op_registry import is_pure

BRANCHES = ("then_branch", "else_branch")


def run(graph: Graph) -> Iterator[Outcome]:
    bodies = {function.signature.name: function for function in graph.library.function}
    return release(graph, lambda node: is_pure(node) or _is_check(node, bodies))


def _is_check(node: Node, bodies: Mapping[str, Any]) -> bool:
    if node.op not in ("If", "StatelessIf"):
        return node.op == "Assert"
    protos = [proto for branch in BRANCHES for proto in bodies[attr(node, branch).name].node_def]
    return all(proto.op in ("Assert", "NoOp") or is_pure(proto) for proto in protos)


LAW = WholeGraphLaw(
    run,
    requires=(),
    removes_checks=True,
    after={"drop_control_edges": "fewer control edges are left to look at"},
    before={
        "drop_numeric_checks": "a node that waits for an assertion is not dropped",
        "drop_training_nodes": "a node that waits for an assertion is not dropped",
    },
)
