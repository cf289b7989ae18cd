"""When a tensor of a version 1 graph comes at all: the sides of switches and the loops that it depends on."""

from collections.abc import Iterable

from tfopt.graph.mutable_graph import Graph, Tensor
from tfopt.graph.op_registry import FRAMES, is_pure

CONTROL = -1  # the number of the output that a control edge starts from
ENTERS = ("Enter", "RefEnter")
MERGES = ("Merge", "RefMerge")
SWITCHES = ("Switch", "RefSwitch", "_SwitchN")

Condition = tuple[str, object]


def is_framed(graph: Graph) -> bool:
    """Whether a graph has control flow of version 1."""
    return bool(graph.of_op(*FRAMES))


def conditions(graph: Graph, ends: Iterable[Tensor]) -> set[Condition]:
    """Return on what it depends whether some tensors come, all of them; of control edges the output is `CONTROL`.

    Two sets of tensors with the same conditions come or stay away together; with more conditions, less often. What has
    an effect and is waited for is a condition too. The time grows with all that lies before.
    """
    found: set[Condition] = set()
    seen: set[Tensor] = set()
    ahead = list(ends)
    while ahead:
        tensor = ahead.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        node = graph.nodes[tensor.node]
        before = node.inputs
        if node.op in SWITCHES and tensor.output != CONTROL:
            found.add(("switch", (node.inputs[1], tensor.output)))
        elif node.op in MERGES:
            entered = [one for one in node.inputs if graph.nodes[one.node].op in ENTERS]
            before = entered  # what another round brings comes only where this loop was entered
            if not entered:
                found.add(("merge", node.name))
        elif node.op in ENTERS:
            found.add(("frame", node.attr["frame_name"].s))
        elif tensor.output == CONTROL and node.op not in FRAMES | {"NoOp", "Placeholder"} and not is_pure(node):
            found.add(("effect", node.name))
        ahead += before
        ahead += [Tensor(name, CONTROL) for name in node.controls]
    return found


def is_inside(graph: Graph, name: str) -> bool:
    """Whether a node lies in a loop or on a side of a switch, so that a constant would have to be told that it does."""
    return any(kind != "effect" for kind, _ in conditions(graph, [Tensor(name)]))


def controls_of(graph: Graph, name: str) -> list[Tensor]:
    """What a node waits for, as ends of `conditions`."""
    return [Tensor(other, CONTROL) for other in graph.nodes[name].controls]
