"""Remove loops whose condition is false before the first iteration: their results are their inputs.

    while(false, f)(x) = x

    before    Const(0), x -> While(i < 0, body) -> i, y
    after     0, x -> i, y

It also removes loops of version 1, of Enter, Merge, LoopCond, Switch and Exit.

Requires: a condition without effects that depends on constants only. The body is never run, so it may be anything.

Source: Grappler's loop optimizer, which removes loops of version 1 without iterations.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfopt.error_messages import first_line
from tfopt.graph.function_bodies import has_no_effect, read_body
from tfopt.graph.law import Graph, Node, Outcome, Tensor, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import ENTERS, MERGES, SWITCHES
from tfopt.graph.op_registry import is_pure
from tfopt.graph.session import evaluate

LOOPS = ("While", "StatelessWhile")


def run(graph: Graph) -> Iterator[Outcome]:
    library = {function.signature.name: function for function in graph.library.function}
    for node in graph.of_op(*LOOPS, "LoopCond"):
        is_function = node.op in LOOPS
        reason = _refusal(graph, node, library) if is_function else _refusal_of_frame(graph, node)
        if not reason:
            _drop_loop(graph, node) if is_function else _drop_frame(graph, node)
        yield node.name, reason


def _refusal(graph: Graph, node: Node, library: dict[str, Any]) -> str | None:
    if node.name in graph.fetched | graph.fed:
        return "it is fed, or an output of the graph itself"
    if node.controls or graph.waiting(node.name):
        return "it carries a control edge"
    body = read_body(library[attr(node, "cond").name], library)
    if isinstance(body, str):
        return body
    condition = body.graph.ancestors({body.returned[0].node})
    needed = {each.name for each in condition.node}
    feeds = {}
    for name, tensor in zip(body.arguments, node.inputs, strict=True):
        if name in needed and not graph.is_constant(tensor):
            return "the condition depends on an input"
        if name in needed:
            feeds[f"{name}:0"] = graph.array(tensor)
    if not all(has_no_effect(body.graph.nodes[name], library) for name in needed - set(body.arguments)):
        return "the condition has an effect"
    return _is_true(condition, body.returned[0], feeds)


def _is_true(graph_def: Any, tensor: Tensor, feeds: dict[str, Any]) -> str | None:
    """Return why a loop is entered, or may be; None if its condition is false."""
    import tensorflow as tf

    try:
        [value] = evaluate(graph_def, [f"{tensor.node}:{tensor.output}"], feeds)
    except (tf.errors.OpError, ValueError) as error:
        return f"the condition fails: {first_line(error)}"
    holds = value.item() if np.ndim(value) == 0 else np.size(value)  # TensorFlow's rule for non-scalars
    return "it is entered" if holds else None


def _drop_loop(graph: Graph, node: Node) -> None:
    for index, tensor in enumerate(node.inputs):
        graph.know_shape(tensor, Tensor(node.name, index))
        graph.redirect(Tensor(node.name, index), tensor)
    graph.remove(node.name)


def _refusal_of_frame(graph: Graph, condition: Node) -> str | None:
    exits = [reader for _, switch in _variables(graph, condition) for reader in _exits(graph, switch)]
    if any(node.name in graph.fetched or node.controls or graph.waiting(node.name) for node in exits):
        return "a result is an output of the graph itself, or carries a control edge"
    if not exits:
        return "nothing reads its results"
    first = Graph.of(graph.ancestors(()))  # the graph of the first iteration
    seen, queue = {condition.name}, [condition.inputs[0]]
    while queue:
        node = graph.nodes[queue.pop().node]
        if node.name in seen:
            continue
        seen.add(node.name)
        inputs = node.inputs
        if node.op in MERGES:
            inputs = [tensor for tensor in inputs if graph.nodes[tensor.node].op in ENTERS]
        elif not (is_pure(node) or node.op in ENTERS) or node.op == "Placeholder" or node.name in graph.fed:
            return "the condition depends on an input, or has an effect"
        if node.op in (*MERGES, *ENTERS):  # in the first iteration they are what enters
            if len(inputs) != 1:
                return "the condition depends on an input, or has an effect"
            node = Node(node.name, "Identity", inputs, [], {"T": node.attr["T"]})
        first.insert(Node(node.name, node.op, inputs, [], node.attr))
        queue += inputs
    return _is_true(first.to_graph_def(), condition.inputs[0], {})


def _variables(graph: Graph, condition: Node) -> list[tuple[Node, Node]]:
    """Return the Enter and the Switch of each variable of a loop."""
    variables = []
    for switch in graph.readers(condition.name):
        merge = graph.nodes[switch.inputs[0].node]
        if switch.op in SWITCHES and merge.op in MERGES:
            enters = [graph.nodes[tensor.node] for tensor in merge.inputs if graph.nodes[tensor.node].op in ENTERS]
            variables += [(enter, switch) for enter in enters]
    return variables


def _exits(graph: Graph, switch: Node) -> list[Node]:
    return [node for node in graph.readers(switch.name) if node.op == "Exit" and node.inputs == [Tensor(switch.name)]]


def _drop_frame(graph: Graph, condition: Node) -> None:
    for enter, switch in _variables(graph, condition):
        for node in _exits(graph, switch):
            graph.know_shape(enter.inputs[0], Tensor(node.name))
            graph.redirect(Tensor(node.name), enter.inputs[0])
            graph.remove(node.name)


LAW = WholeGraphLaw(run, after={"fold_branches": "a loop of a dead branch is gone then"})
