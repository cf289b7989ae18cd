"""A constant behind a switch is a constant on each side of it.

    switch(c, p) = (c if not p, c if p)

    before    Const(kernel) -> Switch(p) -> MatMul on a side
    after     Const(kernel), after that side's Identity -> MatMul on a side

On a side of a switch of version 1 nothing is a constant that was captured from outside, and no law for constants finds
it. Which side the constant belongs to is what it then waits for: the Identity behind the switch of the condition itself
that ``tf.cond`` makes, or a new one. Needs: no larger constant that would then be held twice.
"""

from tfopt.graph.control_flow_v1 import conditions, controls_of
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import identity
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole
from tfopt.graph.rewrites.push_constants_into_bodies import SMALL

NAME = "push_constants_through_switch"


def run(graph: Graph, report: Report) -> int:
    """Make constants of every output of a Switch of a constant that is not only waited for."""
    fired, ahead = 0, [node.name for node in graph.of_op("Switch")]
    while ahead:
        switch = graph.nodes[ahead.pop()]
        if not graph.is_constant(switch.inputs[0]) or graph.is_constant(switch.inputs[1]):
            continue  # of a constant condition `fold_switches` takes one side
        sides = [side for side in (0, 1) if _readers(graph, Tensor(switch.name, side))]
        if not sides:
            continue
        if reason := _refusal(graph, switch, len(sides)):
            report.refuse(NAME, switch.name, reason)
            continue
        ahead += [reader.name for reader in graph.readers(switch.name) if reader.op == "Switch"]
        for side in sides:
            _push(graph, switch, side)
        report.fire(NAME, switch.name)
        fired += 1
    return fired


def _readers(graph: Graph, side: Tensor) -> list[Node]:
    """Who reads a side of a switch, but an Identity that only says that it is this side."""
    return [
        reader
        for reader in graph.readers(side.node)
        if side in reader.inputs
        and (reader.op != "Identity" or graph.readers(reader.name) or reader.name in graph.fetched)
    ]


def _refusal(graph: Graph, switch: Node, sides: int) -> str | None:
    if switch.controls or graph.waiting(switch.name) or switch.name in graph.fetched | graph.fed:
        return "it carries a control edge, or is asked for or fed from outside"
    if any(reader.op == "Switch" and reader.inputs[1].node == switch.name for reader in graph.readers(switch.name)):
        return "it is the condition of another"
    source = switch.inputs[0].node
    size = graph.nodes[source].attr["value"].tensor.ByteSize()
    if size > SMALL and (sides > 1 or graph.uses(source) > 1 or source in graph.fetched):
        return f"a constant of {size:,} bytes would be held more than once"
    held = conditions(graph, controls_of(graph, source))
    return (
        None if held <= conditions(graph, [switch.inputs[1]]) else "the constant waits for what the condition does not"
    )


def _push(graph: Graph, switch: Node, side: int) -> None:
    old = Tensor(switch.name, side)
    readers = _readers(graph, old)
    constant = graph.nodes[switch.inputs[0].node]
    waited = _pivot(graph, switch, side)
    name = graph.fresh(f"{switch.name}/constant_{side}")
    graph.insert(Node(name, "Const", [], [waited], constant.attr, switch.device))
    graph.know_shape(Tensor(name), Tensor(constant.name))
    for reader in readers:
        inputs = [Tensor(name) if tensor == old else tensor for tensor in reader.inputs]
        graph.remove(reader.name)
        graph.insert(Node(reader.name, reader.op, inputs, reader.controls, reader.attr, reader.device))


def _pivot(graph: Graph, switch: Node, side: int) -> str:
    """An Identity that comes exactly where a side of a switch does."""
    condition = switch.inputs[1]
    for other in graph.readers(condition.node):
        if other.op == "Switch" and other.inputs == [condition, condition] and not other.controls:
            for reader in graph.readers(other.name):
                if reader.op == "Identity" and reader.inputs == [Tensor(other.name, side)] and not reader.controls:
                    return reader.name
    name = graph.fresh(f"{switch.name}/side_{side}")
    graph.insert(identity(name, Tensor(switch.name, side), switch.attr["T"].type, device=switch.device))
    return name


LAW = Whole(run, requires=("direct edges", "folded constants"))
