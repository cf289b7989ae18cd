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
from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor, attr
from tfopt.graph.matching.control_flow_v1 import is_inside


def find(graph: Graph, node: Node) -> Body | str:
    if not graph.is_constant(node.inputs[0]):
        return "the condition is not a constant"
    library = {function.signature.name: function for function in graph.library.function}
    body = read_body(library[_chosen(graph, node)], library)
    return body if isinstance(body, str) else _refusal(graph, node, body, library) or body


def rewrite(body: Body, make: Maker) -> list[Tensor]:
    root, nodes = make.root, body.graph.nodes
    plain_ends = {tensor.node for tensor in body.returned if not nodes[tensor.node].controls}
    returned = [nodes[end.node].inputs[0] if end.node in plain_ends else end for end in body.returned]
    arguments = dict(zip(body.arguments, root.inputs[1:], strict=True))
    inner = [node for node in nodes.values() if node.name not in arguments and node.name not in plain_ends]
    names = {node.name: make.graph.fresh(f"{root.name}/{node.name}") for node in inner}

    def outer(tensor: Tensor) -> Tensor:
        return arguments[tensor.node] if tensor.node in arguments else Tensor(names[tensor.node], tensor.output)

    for node in inner:
        inputs = [outer(tensor) for tensor in node.inputs]
        controls = [names[other] for other in node.controls if other in names]
        make.graph.insert(Node(names[node.name], node.op, inputs, controls, node.attr, root.device))
    return [outer(tensor) for tensor in returned]


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


LAW = SearchLaw(
    ("If", "StatelessIf", "Case", "StatelessCase"),
    find,
    rewrite,
    in_frames=True,
    after={
        "fold_constants": "more conditions are constants then",
        "fold_switches": "an If on a dead side is gone then",
    },
)
