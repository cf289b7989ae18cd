"""A condition that is known leaves one branch.

    if(true, f, g)(x) = f(x)

    before    Const(true) -> If(f, g); x -> If -> y
    after     x -> the nodes of f -> y

What dropout and other things that depend on a learning phase leave behind once that is a constant. Needs: a branch
without effects, as nothing would say any more when they happen. `fold_switches` does the same for version 1.
"""

from typing import Any

from tfopt.graph.operations import is_pure
from tfopt.graph.report import Report
from tfopt.graph.rule import Whole, attr
from tfopt.graph.view import Graph, Node, Tensor

NAME = "fold_branches"


def run(graph: Graph, report: Report) -> int:
    """Replace every If of a constant by the nodes of a branch."""
    functions = {function.signature.name: function for function in graph.library.function}
    fired = 0
    ahead = [node for node in graph.nodes.values() if node.op in ("If", "StatelessIf")]
    while ahead:
        node = ahead.pop()
        if not graph.is_constant(node.inputs[0]):
            report.refuse(NAME, node.name, "the condition is not a constant")
            continue
        known = graph.array(node.inputs[0])
        holds = known.item() if known.ndim == 0 else known.size  # as TensorFlow takes what is no scalar
        chosen = "then_branch" if holds else "else_branch"
        body = _body(functions[attr(node, chosen).name])
        if reason := _refusal(graph, node, body):
            report.refuse(NAME, node.name, reason)
            continue
        ahead += [made for made in _inline(graph, node, *body) if made.op in ("If", "StatelessIf")]
        report.fire(NAME, node.name)
        fired += 1
    return fired


Body = tuple[Graph, list[str], list[Tensor]]  # the nodes, the names of the arguments among them, what is returned


def _body(function: Any) -> Body:
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

    graph_def, flat = function_def_to_graph_def(function)
    arguments = [argument.name for argument in function.signature.input_arg]
    returned = []
    for output in function.signature.output_arg:
        name, _, index = flat[function.ret[output.name]].partition(":")
        returned.append(Tensor(name, int(index)))
    return Graph.of(graph_def), arguments, returned


def _refusal(graph: Graph, node: Node, body: Body) -> str | None:
    if node.name in graph.fetched:
        return "it is an output of the graph itself"
    if node.controls or graph.waiting(node.name):
        return "it carries a control edge"
    nodes, arguments, _ = body
    for inner in nodes.nodes.values():
        if inner.name not in arguments and not (is_pure(inner) or inner.op in ("StatelessIf", "StatelessWhile")):
            return f"the branch has {inner.op}, which has an effect or cannot be moved out of a function"
    return None


def _inline(graph: Graph, node: Node, nodes: Graph, arguments: list[str], returned: list[Tensor]) -> list[Node]:
    """Put a branch in the place of an If, and return its nodes."""
    given = dict(zip(arguments, node.inputs[1:], strict=True))
    names = {name: graph.fresh(f"{node.name}/{name}") for name in nodes.nodes if name not in given}

    def moved(tensor: Tensor) -> Tensor:
        return given[tensor.node] if tensor.node in given else Tensor(names[tensor.node], tensor.output)

    made = [
        Node(
            names[inner.name],
            inner.op,
            [moved(tensor) for tensor in inner.inputs],
            [names[other] for other in inner.controls if other in names],
            inner.attr,
            node.device,
        )
        for inner in nodes.nodes.values()
        if inner.name in names
    ]
    for inner in made:
        graph.insert(inner)
    for index, tensor in enumerate(returned):
        graph.know_shape(moved(tensor), Tensor(node.name, index))
        graph.redirect(Tensor(node.name, index), moved(tensor))
    graph.remove(node.name)
    return made


LAW = Whole(run, requires=("direct edges", "folded constants"))
