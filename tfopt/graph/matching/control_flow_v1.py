"""Control flow of TensorFlow 1: the conditions (Switch branches, loop frames) under which a tensor is computed."""

from collections.abc import Iterable

from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.op_registry import FRAMES, is_pure

CONTROL = -1  # the number of the output that a control edge starts from
ENTERS = ("Enter", "RefEnter")
MERGES = ("Merge", "RefMerge")
SWITCHES = ("Switch", "RefSwitch", "_SwitchN")

Condition = tuple[str, object]


def is_framed(graph: Graph) -> bool:
    """Return whether a graph has Switch, Merge or Enter nodes."""
    return bool(graph.of_op(*FRAMES))


def conditions(graph: Graph, ends: Iterable[Tensor]) -> set[Condition]:
    """Return the conditions under which all of some tensors are computed.

    A condition is a branch of a Switch, a Merge, a loop frame, or a node with an effect that is waited for. Sets of
    tensors with equal conditions are computed in the same executions; a superset of conditions means fewer executions.
    A control edge is given as the node with output `CONTROL`. The time grows with the number of ancestors.
    """
    result: set[Condition] = set()
    seen: set[Tensor] = set()
    queue = list(ends)
    while queue:
        tensor = queue.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        node = graph.nodes[tensor.node]
        inputs = node.inputs
        if node.op in SWITCHES and tensor.output != CONTROL:
            result.add(("switch", (node.inputs[1], tensor.output)))
        elif node.op in MERGES:
            # Inputs from later iterations are computed only if this loop was entered.
            inputs = [each for each in node.inputs if graph.nodes[each.node].op in ENTERS]
            if not inputs:
                result.add(("merge", node.name))
        elif node.op in ENTERS:
            result.add(("frame", node.attr["frame_name"].s))
        elif tensor.output == CONTROL and node.op not in FRAMES | {"NoOp", "Placeholder"} and not is_pure(node):
            result.add(("effect", node.name))
        queue += inputs
        queue += [Tensor(name, CONTROL) for name in node.controls]
    return result


def is_inside(graph: Graph, name: str) -> bool:
    """Return whether a node is in a loop or in a Switch branch, where a new constant needs a control edge."""
    return any(kind != "effect" for kind, _ in conditions(graph, [Tensor(name)]))


def controls_of(graph: Graph, name: str) -> list[Tensor]:
    """Return the control inputs of a node, as arguments for `conditions`."""
    return [Tensor(other, CONTROL) for other in graph.nodes[name].controls]
