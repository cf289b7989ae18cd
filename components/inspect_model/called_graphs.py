"""Functions that nodes call: once, or in loops with a known number of iterations, as those of recurrent layers."""

from tfopt.graph import law_runner
from tfopt.graph.function_bodies import Body, read_body
from tfopt.graph.law import Maker
from tfopt.graph.matching.counted_loops import (
    Loop,
    is_invariant,
    is_iteration_count,
    position_of,
    scalar_value,
    skip_identities,
)
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

PASSES = ("strip_unused", "drop_control_edges", "fold_static_shapes", "fold_constants")
LOOPS = ("While", "StatelessWhile")
CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f"} | dict.fromkeys(LOOPS, "body")


def read_called_graph(graph: Graph, node: Node) -> tuple[Graph, int] | None:
    """Return the body of the function that a node calls, with the shapes of its arguments, and the number of calls.

    None for other nodes, and for loops whose number of iterations is not a constant of the graph: a comparison of a
    counter, from 0 by 1, with a constant. If a loop may end earlier, it is the largest number.
    """
    if node.op not in CALLS:
        return None
    body = _read(graph, node, CALLS[node.op])
    if body is None:
        return None
    if "cond" not in node.attr:
        return body.graph, 1
    cond = _read(graph, node, "cond")
    count = None if cond is None else _iteration_count(Loop(graph, node, body, cond, Maker(graph, node, [])))
    return None if count is None else (body.graph, count)


def simplify(graph: Graph) -> None:
    """Fold what is constant because sizes are known, such as the state with which a loop or unrolled steps begin."""
    law_runner.run(PASSES, graph, Report())
    graph.forget_shapes()
    for name in graph.downstream():
        node = graph.nodes[name]
        if node.op in LOOPS:
            _fix_output_shapes(graph, node)
        elif node.op == "TensorListStack" and node.attr["num_elements"].i < 0:  # Keras 2 does not store it
            node.attr["num_elements"].i = _list_length(graph, node.inputs[0]) or -1
    law_runner.run(PASSES, graph, Report())  # what is constant with the sizes that follow
    graph.forget_shapes()


def _fix_output_shapes(graph: Graph, loop: Node) -> None:
    """Give the results of a loop the shapes of its arguments, which the graph stores with an open batch size.

    A loop whose body changes a shape, as one that appends to a tensor, is left as it is.
    """
    import tensorflow as tf

    body = _read(graph, loop, "body")
    shapes = [graph.shape(tensor) for tensor in loop.inputs]
    if body is None or any(
        shape is not None and body.graph.shape(tensor) != shape
        for tensor, shape in zip(body.returned, shapes, strict=True)
    ):
        return
    protos = [tf.TensorShape(shape).as_proto() for shape in shapes]
    loop.attr["output_shapes"].list.CopyFrom(tf.compat.v1.AttrValue.ListValue(shape=protos))
    graph.forget_shapes()


def _list_length(graph: Graph, tensor: Tensor) -> int | None:
    """Return the length of the list that a loop fills, as that of the outputs of all steps; None if it is open."""
    loop = graph.nodes[tensor.node]
    if loop.op not in LOOPS:
        return None
    reserved = graph.nodes[loop.inputs[tensor.output].node]
    return scalar_value(graph, reserved.inputs[1]) if reserved.op == "TensorListReserve" else None


def _read(graph: Graph, node: Node, attribute: str) -> Body | None:
    """Return a function that a node calls, with the shapes of its arguments, which each iteration of a loop keeps."""
    import tensorflow as tf

    library = {function.signature.name: function for function in graph.library.function}
    body = read_body(library[node.attr[attribute].func.name], library)
    if isinstance(body, str):
        return None
    for name, tensor in zip(body.arguments, node.inputs, strict=True):
        if (shape := graph.shape(tensor)) is not None:
            body.graph.nodes[name].attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    law_runner.run(PASSES, body.graph, Report())
    body.graph.forget_shapes()
    return body


def _iteration_count(loop: Loop) -> int | None:
    cond, bounds = loop.cond, []
    ahead = [skip_identities(cond, cond.returned[0])]
    while ahead:
        node = cond.graph.nodes[ahead.pop().node]
        if node.op == "LogicalAnd":
            ahead += [skip_identities(cond, tensor) for tensor in node.inputs]
        elif node.op == "Less":
            low, high = (position_of(cond, tensor) for tensor in node.inputs)
            if low is None or not is_iteration_count(loop, low):
                continue
            if high is None:
                bounds.append(scalar_value(cond.graph, skip_identities(cond, node.inputs[1])))
            elif is_invariant(loop, high):
                bounds.append(scalar_value(loop.graph, loop.node.inputs[high]))
    return min((bound for bound in bounds if bound is not None), default=None)
