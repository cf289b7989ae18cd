"""Push constants through the Enter nodes of TensorFlow 1 loops.

    enter(c, is_constant) = c        computed once per iteration

    before    Const(kernel) -> Enter(is_constant) -> MatMul in the loop
    after     Const(kernel), control edge from Merge -> MatMul in the loop

A TensorFlow 1 loop is a part of the graph, called a frame. A constant has no inputs, so only a control edge can put it
into a frame; TensorFlow refuses edges between frames other than through Enter and Exit. The control edge comes from the
Merge of the loop counter, which runs once per iteration, including the last one, in which the condition is false.

Requires:
    - The Enter has `is_constant`.
    - The frame has exactly one LoopCond; with several, one loop may run another number of iterations than the other.
    - No control edge enters or leaves the Enter, and it is not fed or fetched.
    - The constant waits for nothing that the loop does not wait for.
    - A constant of more than 1,024 bytes is stored once afterwards.

Source: tf.raw_ops.Enter, Merge and LoopCond; Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys
2018.
"""

from collections.abc import Iterator

from tfopt.graph.law import Graph, Node, Outcome, Tensor, WholeGraphLaw, attr
from tfopt.graph.laws.push_constants_into_bodies import SMALL
from tfopt.graph.matching.control_flow_v1 import ENTERS, MERGES, conditions, controls_of
from tfopt.graph.op_registry import FRAMES


def run(graph: Graph) -> Iterator[Outcome]:
    merges: dict[str, str | None] = {}
    queue = graph.of_op("Enter")
    while queue:
        enter = queue.pop()
        if not graph.is_constant(enter.inputs[0]) or not graph.uses(enter.name):
            continue
        frame = attr(enter, "frame_name")
        merge = merges[frame] = merges[frame] if frame in merges else _merge_of_frame(graph, frame)
        reason = _refusal(graph, enter) or (None if merge else "the loop has no condition of its own")
        if reason or not merge:
            yield enter.name, reason
            continue
        constant = graph.nodes[enter.inputs[0].node]
        if not conditions(graph, controls_of(graph, constant.name)) <= conditions(graph, [Tensor(merge)]):
            yield enter.name, "the constant waits for what the loop does not wait for"
            continue
        queue += [reader for reader in graph.readers(enter.name) if reader.op == "Enter"]  # of nested loops
        graph.remove(enter.name)
        graph.insert(Node(enter.name, "Const", [], [merge], constant.attr, enter.device))
        yield enter.name, None


def _refusal(graph: Graph, enter: Node) -> str | None:
    if not attr(enter, "is_constant"):
        return "its value exists in the first iteration only"
    if graph.is_held(enter):
        return "it carries a control edge, or is fed or fetched"
    if any(reader.op in FRAMES - {"Enter", "Switch"} for reader in graph.readers(enter.name)):
        return "control flow reads it"
    return storage_refusal(graph, enter.inputs[0].node)


def storage_refusal(graph: Graph, source: str, copies: int = 1) -> str | None:
    """Return why a constant is not copied: it is large, and stored again elsewhere; None if it may be copied."""
    size = graph.nodes[source].attr["value"].tensor.ByteSize()
    is_shared = copies > 1 or graph.uses(source) > 1 or source in graph.fetched
    return f"a constant of {size:,} bytes would be stored more than once" if size > SMALL and is_shared else None


def _merge_of_frame(graph: Graph, frame: str) -> str | None:
    """Return the Merge from which the condition of a frame is computed, or None if there is not exactly one."""
    merges = [merge for node in graph.of_op("LoopCond") if (merge := _merge_before(graph, node, frame))]
    return merges[0] if len(merges) == 1 else None


def _merge_before(graph: Graph, condition: Node, frame: str) -> str | None:
    """Return the first Merge of a frame among the ancestors of a LoopCond."""
    seen, queue = {condition.name}, [condition.name]
    while queue:
        node = graph.nodes[queue.pop()]
        enters = [graph.nodes[tensor.node] for tensor in node.inputs if graph.nodes[tensor.node].op in ENTERS]
        if node.op in MERGES and enters:
            if any(attr(enter, "frame_name") == frame for enter in enters):
                return node.name
            continue  # the Merge belongs to another loop
        producers = {*(tensor.node for tensor in node.inputs), *node.controls} - seen
        queue += [name for name in sorted(producers) if graph.nodes[name].op not in ENTERS]
        seen |= producers
    return None


LAW = WholeGraphLaw(
    run,
    after={"fold_constants": "constants that the graph computes are pushed, too"},
    before={"fold_switches": "a condition that enters a loop is a constant in the loop then"},
)
