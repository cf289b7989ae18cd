"""Remove Switch and Merge nodes with a constant condition, and the nodes of the dead side.

    merge(f(x if true), g(x if false)) = f(x)

    before    Const(true) -> Switch; x -> Switch -> f, g -> Merge -> y
    after     x -> f -> y

These are conditions of control flow version 1, as a constant `is_training` leaves them; `fold_branches` does the same
for version 2. Nodes of the dead side are removed, with the nodes that wait for them, and with loops that are entirely
on it.

Requires: no remaining loop reads the dead side, and no output of the graph is on it.
"""

from collections.abc import Iterator

from tfopt.graph.law import INT32, Graph, Maker, Node, Outcome, Tensor, WholeGraphLaw
from tfopt.graph.op_registry import attributes, identity

AGAIN = "NextIteration"


def run(graph: Graph) -> Iterator[Outcome]:
    conditions: dict[str, int] = {}
    for switch in graph.of_op("Switch"):
        if graph.is_constant(switch.inputs[1]):
            conditions[switch.name] = int(bool(graph.array(switch.inputs[1])))
        else:
            yield switch.name, "the condition is not a constant"
    if conditions and not _fold(graph, conditions):  # all at once, because one alone may leave parts of a loop
        yield from dict.fromkeys(conditions).items()
        return
    for name, live in conditions.items():
        if name in graph.nodes:  # else it was on the dead side of another
            yield name, _fold(graph, {name: live})


def _fold(graph: Graph, conditions: dict[str, int]) -> str | None:
    lost = {Tensor(name, 1 - live) for name, live in conditions.items()}
    dead = _dead(graph, lost)
    if isinstance(dead, str):
        return dead
    for merge in _merges(graph, lost, dead):
        _choose(graph, merge, _living(merge, lost, dead))
    for other in {other.name for name in dead for other in graph.waiting(name)} - dead:
        graph.wait_for(other, [name for name in graph.nodes[other].controls if name not in dead])
    for name in dead:
        graph.remove(name)
    for name in [name for name in conditions if name not in dead]:
        graph.redirect(Tensor(name, conditions[name]), Tensor(name))
        _become_identity(graph, graph.nodes[name], graph.nodes[name].inputs[0])
    return None


def _dead(graph: Graph, lost: set[Tensor]) -> set[str] | str:
    """Return the nodes that never run without the lost tensors, except merges with another live input; or why not."""
    dead: set[str] = set()
    pending = [reader for tensor in lost for reader in graph.readers(tensor.node) if tensor in reader.inputs]
    while pending:
        node = pending.pop()
        if node.name in dead or node.op == "ControlTrigger":
            continue
        if node.op.startswith("Ref"):
            return f"the dead side reaches {node.op}, whose tensor may change"
        if node.op == "Merge" and any(
            graph.nodes[node.inputs[at].node].op != AGAIN for at in _living(node, lost, dead)
        ):
            continue
        if node.name in graph.fetched:
            return "an output of the graph is on the dead side"
        dead.add(node.name)
        pending += [*graph.readers(node.name), *graph.waiting(node.name)]
    merges = [graph.nodes[name] for name in dead if graph.nodes[name].op == "Merge"]
    reached = [reader for name in dead if graph.nodes[name].op == AGAIN for reader in graph.readers(name)]
    if any(_living(merge, lost, dead) for merge in merges) or any(reader.name not in dead for reader in reached):
        return "a remaining loop reads the dead side, or its next iteration does"
    return dead


def _living(merge: Node, lost: set[Tensor], dead: set[str]) -> list[int]:
    return [at for at, tensor in enumerate(merge.inputs) if tensor not in lost and tensor.node not in dead]


def _merges(graph: Graph, lost: set[Tensor], dead: set[str]) -> list[Node]:
    """Return the remaining nodes that read the dead side; they are merges."""
    readers = [reader for tensor in lost for reader in graph.readers(tensor.node) if tensor in reader.inputs]
    readers += [reader for name in dead for reader in graph.readers(name)]
    merges = {node.name: node for node in readers if node.name not in dead}
    return [merges[name] for name in sorted(merges)]


def _choose(graph: Graph, merge: Node, living: list[int]) -> None:
    """Leave a merge its live inputs; its output value_index still has their original numbers."""
    if len(living) == 1:  # with a control edge from the merge, so that it is in its frame
        chosen = Maker(graph, merge, [merge.name]).integers("value_index", living[0])
        graph.redirect(Tensor(merge.name, 1), chosen)
        _become_identity(graph, merge, merge.inputs[living[0]])
        return
    inputs, attrs = [merge.inputs[at] for at in living], attributes("Merge", merge.attr, {"N": len(living)})
    graph.replace(merge, inputs=inputs, attr=attrs)
    if not any(Tensor(merge.name, 1) in reader.inputs for reader in graph.readers(merge.name)):
        return
    name = graph.fresh(f"{merge.name}/old_index")
    graph.redirect(Tensor(merge.name, 1), Tensor(name))
    make = Maker(graph, merge, [merge.name])
    inputs = [make.integers("numbers", living), Tensor(merge.name, 1), make.integers("axis", 0)]
    attrs = attributes("GatherV2", {}, dict.fromkeys(("Tparams", "Tindices", "Taxis"), INT32))
    graph.insert(Node(name, "GatherV2", inputs, [], attrs, merge.device))


def _become_identity(graph: Graph, node: Node, source: Tensor) -> None:
    """Replace a node by an Identity with its name and control edges; `drop_training_nodes` may remove it."""
    graph.remove(node.name)
    graph.insert(identity(node.name, source, node.attr["T"].type, node.controls, node.device))


LAW = WholeGraphLaw(
    run, after={"fold_constants": "more conditions are constants then"}, follows="push_constants_through_switch"
)
