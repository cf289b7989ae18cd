"""Replace an If or Case with a constant condition by the nodes of the chosen branch.

    if(true, f, g)(x) = f(x)        case(1, f, g, h)(x) = g(x)

    before    Const(true) -> If(f, g); x -> If -> y
    after     x -> the nodes of f -> y

Such conditions remain after a learning phase, as of dropout, has become a constant. An index out of range selects the
last branch of a Case. `fold_switches` does the same for control flow of version 1.

Requires: a branch without effects, because their order would no longer be defined.
"""

from typing import Any

from tfopt.graph.function_bodies import Body, has_no_effect, read_body
from tfopt.graph.law import WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_inside
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "fold_branches"
CHOICES = ("If", "StatelessIf", "Case", "StatelessCase")


def run(graph: Graph, report: Report) -> int:
    """Replace every If and Case with a constant condition."""
    library = {function.signature.name: function for function in graph.library.function}
    fired = 0
    pending = graph.of_op(*CHOICES)
    while pending:
        node = pending.pop()
        if not graph.is_constant(node.inputs[0]):
            report.refuse(NAME, node.name, "the condition is not a constant")
            continue
        body = read_body(library[_chosen(graph, node)], library)
        reason = body if isinstance(body, str) else _refusal(graph, node, body, library)
        if isinstance(body, str) or reason:
            report.refuse(NAME, node.name, str(reason))
            continue
        pending += [inner for inner in _inline(graph, node, body) if inner.op in CHOICES]
        report.fire(NAME, node.name)
        fired += 1
    return fired


def _chosen(graph: Graph, node: Node) -> str:
    condition = graph.array(node.inputs[0])
    if "Case" in node.op:
        branches = node.attr["branches"].list.func
        index = int(condition)
        return str(branches[index if 0 <= index < len(branches) else -1].name)
    holds = condition.item() if condition.ndim == 0 else condition.size  # TensorFlow's rule for non-scalars
    return str(attr(node, "then_branch" if holds else "else_branch").name)


def _refusal(graph: Graph, node: Node, body: Body, library: dict[str, Any]) -> str | None:
    if node.name in graph.fetched:
        return "it is an output of the graph itself"
    if is_inside(graph, node.name):
        return "it is in control flow of version 1, to which constants of its branch would not belong"
    if node.controls or graph.waiting(node.name) or graph.nodes[node.inputs[0].node].controls:
        return "it carries a control edge"
    for inner in body.graph.nodes.values():
        if inner.name not in body.arguments and not has_no_effect(inner, library):
            return f"the branch has {inner.op}, which has an effect or cannot be moved out of a function"
    return None


def _inline(graph: Graph, node: Node, body: Body) -> list[Node]:
    """Replace an If by the nodes of a branch, and return them."""
    nodes = body.graph.nodes
    returned = [_before_identity(nodes[tensor.node], tensor) for tensor in body.returned]
    ends = {end.node for end, tensor in zip(body.returned, returned, strict=True) if end != tensor}
    arguments = dict(zip(body.arguments, node.inputs[1:], strict=True))
    names = {name: graph.fresh(f"{node.name}/{name}") for name in nodes if name not in arguments and name not in ends}

    def outer(tensor: Tensor) -> Tensor:
        return arguments[tensor.node] if tensor.node in arguments else Tensor(names[tensor.node], tensor.output)

    inlined = [
        Node(
            names[inner.name],
            inner.op,
            [outer(tensor) for tensor in inner.inputs],
            [names[other] for other in inner.controls if other in names],
            inner.attr,
            node.device,
        )
        for inner in nodes.values()
        if inner.name in names
    ]
    for inner in inlined:
        graph.insert(inner)
    for index, tensor in enumerate(returned):
        graph.know_shape(outer(tensor), Tensor(node.name, index))
        graph.redirect(Tensor(node.name, index), outer(tensor))
    graph.remove(node.name)
    return inlined


def _before_identity(end: Node, tensor: Tensor) -> Tensor:
    return tensor if end.controls else end.inputs[0]


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    after={
        "fold_constants": "more conditions are constants then",
        "fold_switches": "an If on a dead side is gone then",
    },
)
