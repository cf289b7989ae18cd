"""Push constants through the Switch nodes of TensorFlow 1 conditions.

    switch(c, p) = (c if not p, c if p)

    before    Const(kernel) -> Switch(p) -> MatMul in a branch
    after     Const(kernel), control edge from the Identity of the branch -> MatMul in a branch

In a branch of a TensorFlow 1 condition, captured constants are outputs of a Switch, so laws for constants do not match.
The new constants need a control edge so that they belong to the branch. It comes from the Identity that ``tf.cond``
creates after the Switch of the condition itself, or from a new Identity.

Requires:
    - The condition is not constant; `fold_switches` folds constant conditions.
    - No control edge enters or leaves the Switch, and it is not fed or fetched.
    - The Switch does not compute the condition of another Switch.
    - The constant waits for nothing that the condition does not wait for.
    - A constant of more than 1,024 bytes is stored once afterwards.

Source: tf.raw_ops.Switch; Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018.
"""

from collections.abc import Iterator

from tfopt.graph.law import Graph, Node, Outcome, Tensor, WholeGraphLaw
from tfopt.graph.laws.push_constants_through_enter import storage_refusal
from tfopt.graph.matching.control_flow_v1 import conditions, controls_of
from tfopt.graph.op_registry import identity


def run(graph: Graph) -> Iterator[Outcome]:
    """Replace the outputs of each Switch of a constant that have readers by constants."""
    queue = [node.name for node in graph.of_op("Switch")]
    while queue:
        switch = graph.nodes[queue.pop()]
        if not graph.is_constant(switch.inputs[0]) or graph.is_constant(switch.inputs[1]):
            continue  # `fold_switches` folds constant conditions
        branches = [branch for branch in (0, 1) if _readers(graph, Tensor(switch.name, branch))]
        if not branches:
            continue
        if reason := _refusal(graph, switch, len(branches)):
            yield switch.name, reason
            continue
        queue += [reader.name for reader in graph.readers(switch.name) if reader.op == "Switch"]
        for branch in branches:
            _push(graph, switch, branch)
        yield switch.name, None


def _readers(graph: Graph, output: Tensor) -> list[Node]:
    """Return the readers of an output of a Switch, except Identities that only start control edges."""
    readers = [reader for reader in graph.readers(output.node) if output in reader.inputs]
    return [node for node in readers if node.op != "Identity" or graph.readers(node.name) or node.name in graph.fetched]


def _refusal(graph: Graph, switch: Node, branches: int) -> str | None:
    if graph.is_held(switch):
        return "it carries a control edge, or is fed or fetched"
    if any(reader.op == "Switch" and reader.inputs[1].node == switch.name for reader in graph.readers(switch.name)):
        return "it is the condition of another Switch"
    source = switch.inputs[0].node
    if reason := storage_refusal(graph, source, branches):
        return reason
    if not conditions(graph, controls_of(graph, source)) <= conditions(graph, [switch.inputs[1]]):
        return "the constant waits for what the condition does not wait for"
    return None


def _push(graph: Graph, switch: Node, branch: int) -> None:
    old = Tensor(switch.name, branch)
    readers = _readers(graph, old)
    constant = graph.nodes[switch.inputs[0].node]
    pivot = _pivot(graph, switch, branch)
    name = graph.fresh(f"{switch.name}/constant_{branch}")
    graph.insert(Node(name, "Const", [], [pivot], constant.attr, switch.device))
    graph.know_shape(Tensor(name), Tensor(constant.name))
    for reader in readers:
        inputs = [Tensor(name) if tensor == old else tensor for tensor in reader.inputs]
        graph.replace(reader, inputs=inputs)


def _pivot(graph: Graph, switch: Node, branch: int) -> str:
    """Return an Identity that runs if and only if a branch of a Switch is taken."""
    condition = switch.inputs[1]
    for other in graph.readers(condition.node):
        if other.op == "Switch" and other.inputs == [condition, condition] and not other.controls:
            for reader in graph.readers(other.name):
                if reader.op == "Identity" and reader.inputs == [Tensor(other.name, branch)] and not reader.controls:
                    return reader.name
    name = graph.fresh(f"{switch.name}/side_{branch}")
    graph.insert(identity(name, Tensor(switch.name, branch), switch.attr["T"].type, device=switch.device))
    return name


LAW = WholeGraphLaw(run, after={"fold_constants": "constants that the graph computes are pushed, too"})
