"""What enters a loop of version 1 as a constant is a constant of each round.

    enter(c, is_constant) = c, after the start of each round

    before    Const(kernel) -> Enter(is_constant) -> MatMul in the loop
    after     Const(kernel), after Merge -> MatMul in the loop

A loop of version 1 is a part of the graph, a frame, and a constant belongs to it only by what it waits for: TensorFlow
refuses a graph in which one frame reads another but through Enter and Exit. So the constant waits for the Merge of the
counter, which comes once in each round, the last one included, in which the condition is false. Needs: one LoopCond in
the frame, so that it is known whose rounds are counted, and no larger constant that would then be held twice.
"""

from tfopt.graph.control_flow_v1 import ENTERS, MERGES, conditions, controls_of
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import FRAMES
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Whole, attr
from tfopt.graph.rewrites.push_constants_into_bodies import SMALL

NAME = "push_constants_through_enter"


def run(graph: Graph, report: Report) -> int:
    """Make a constant of every Enter of a constant that stays the same in all rounds."""
    firsts: dict[str, str | None] = {}
    fired, ahead = 0, graph.of_op("Enter")
    while ahead:
        enter = ahead.pop()
        if not graph.is_constant(enter.inputs[0]) or not graph.uses(enter.name):
            continue
        frame = attr(enter, "frame_name")
        first = firsts[frame] = firsts[frame] if frame in firsts else _first_of_rounds(graph, frame)
        reason = _refusal(graph, enter) or (None if first else "the loop has no condition of its own")
        if reason or not first:
            report.refuse(NAME, enter.name, str(reason))
            continue
        constant = graph.nodes[enter.inputs[0].node]
        if not conditions(graph, controls_of(graph, constant.name)) <= conditions(graph, [Tensor(first)]):
            report.refuse(NAME, enter.name, "the constant waits for what the loop does not wait for")
            continue
        ahead += [reader for reader in graph.readers(enter.name) if reader.op == "Enter"]  # of a loop in this one
        graph.remove(enter.name)
        graph.insert(Node(enter.name, "Const", [], [first], constant.attr, enter.device))
        report.fire(NAME, enter.name)
        fired += 1
    return fired


def _refusal(graph: Graph, enter: Node) -> str | None:
    if not attr(enter, "is_constant"):
        return "it comes in the first round only"
    if enter.controls or graph.waiting(enter.name) or enter.name in graph.fetched | graph.fed:
        return "it carries a control edge, or is asked for or fed from outside"
    if any(reader.op in FRAMES - {"Enter", "Switch"} for reader in graph.readers(enter.name)):
        return "control flow reads it"
    source = enter.inputs[0].node
    size = graph.nodes[source].attr["value"].tensor.ByteSize()
    if size > SMALL and (graph.uses(source) > 1 or source in graph.fetched):
        return f"a constant of {size:,} bytes would be held more than once"
    return None


def _first_of_rounds(graph: Graph, frame: str) -> str | None:
    """The Merge that the condition of a frame is computed from; None where it has none, or several."""
    found = [merge for node in graph.of_op("LoopCond") if (merge := _merge(graph, node, frame))]
    return found[0] if len(found) == 1 else None


def _merge(graph: Graph, condition: Node, frame: str) -> str | None:
    seen, ahead = {condition.name}, [condition.name]
    while ahead:
        node = graph.nodes[ahead.pop()]
        entered = [one for one in node.inputs if graph.nodes[one.node].op in ENTERS]
        if node.op in MERGES and entered:
            if any(attr(graph.nodes[one.node], "frame_name") == frame for one in entered):
                return node.name
            continue  # of another loop
        before = {*(one.node for one in node.inputs), *node.controls} - seen
        ahead += [name for name in sorted(before) if graph.nodes[name].op not in ENTERS]
        seen |= before
    return None


LAW = Whole(run, requires=("direct edges", "folded constants"))
