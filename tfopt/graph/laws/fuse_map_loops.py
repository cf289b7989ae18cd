"""Replace a loop that applies a function to each slice of a tensor by the function on the whole tensor.

    stack(f(x[0]), f(x[1]), …) = F(x)        F is f with an additional leading axis

    before    x -> TensorListFromTensor -> While(i from 0 to n: result[i] = f(x[i])) -> TensorListStack -> y
    after     x -> F -> y

``tf.map_fn`` and loops over a TensorArray have this form. f may consist of elementwise operations on slices and on
loop-invariant tensors of at most the slice's rank; matrix products with at most one invariant operand; Softmax;
reductions over constant axes; transpositions; and reshapes to constant sizes. Slices come from a list, or are ``a[i]``.

Requires: lists that are read and written at the counter only; a counter from 0 in steps of 1; bounds equal to the
number of slices; no other result of the loop is read; no effects. Sums over iterations, and iterations that read
results of others, are refused.
"""

import numpy as np

from tfopt.graph.function_bodies import read_body
from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_inside
from tfopt.graph.matching.counted_loops import (
    Loop,
    Refusal,
    Value,
    check_bounds,
    check_written,
    indexed_tensor,
    is_counter,
    is_invariant,
    is_iteration_count,
    list_of,
    position_of,
    sources,
    writer_of,
)
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY, identity
from tfopt.graph.report import Report

NAME = "fuse_map_loops"
ONE_OPERAND = UNARY | {"Identity", "StopGradient"}
LAST_AXIS = {"Softmax", "LogSoftmax"}
SHAPED = REDUCTIONS | {"Transpose", "Reshape"}
COMPLEX = {8, 18}  # complex dtypes, which BatchMatMulV2 conjugates when it transposes; MatMul does not


def run(graph: Graph, report: Report) -> int:
    """Replace every loop that is a map."""
    library = {function.signature.name: function for function in graph.library.function}
    fired = 0
    for node in graph.of_op("While", "StatelessWhile"):
        body, cond = (read_body(library[attr(node, name).name], library) for name in ("body", "cond"))
        if isinstance(body, str) or isinstance(cond, str):
            report.refuse(NAME, node.name, str(body if isinstance(body, str) else cond))
            continue
        loop = Loop(graph, node, body, cond, Maker(graph, node, []))
        try:
            _fuse(loop)
        except Refusal as refusal:
            for name in reversed(loop.make.made):
                graph.remove(name)
            report.refuse(NAME, node.name, str(refusal))
            continue
        report.fire(NAME, node.name)
        fired += 1
    if fired:
        graph.forget_shapes()
    return fired


def _fuse(loop: Loop) -> None:
    graph, node = loop.graph, loop.node
    if node.controls or graph.waiting(node.name) or node.name in graph.fetched:
        raise Refusal("it carries a control edge, or is an output of the graph itself")
    if is_inside(graph, node.name):
        raise Refusal("it is in control flow of version 1, to which constants of its body would not belong")
    for body in (loop.body, loop.cond):
        if body.graph.fetched - {tensor.node for tensor in body.returned}:
            raise Refusal("an iteration has an effect")
    loop.counters = {place for place in range(len(node.inputs)) if is_iteration_count(loop, place)}
    stacks: dict[int, list[Node]] = {}
    for reader in graph.readers(node.name):
        for tensor in reader.inputs:
            if tensor.node == node.name:
                if reader.op != "TensorListStack" or reader.inputs[0] != tensor or reader.name in graph.fed:
                    raise Refusal(f"{reader.op} reads the loop, which is no list of results")
                stacks.setdefault(tensor.output, []).append(reader)
    if not stacks:
        raise Refusal("it makes no list of results")
    inputs = sources(loop)
    if not inputs:
        raise Refusal("no loop-invariant list of slices is an input")
    for slices in inputs:
        check_bounds(loop, slices)
    for place in stacks:
        check_written(loop, place)
    results = {place: _build(loop, writer_of(loop, place).inputs[2]) for place in stacks}
    for place, value in results.items():
        if not value.varies:
            raise Refusal("a result that is the same in each iteration")
        for stack in stacks[place]:
            kind = stack.attr["element_dtype"].type
            graph.remove(stack.name)
            graph.insert(identity(stack.name, value.made, kind, stack.controls, stack.device))
    graph.remove(node.name)


def _build(loop: Loop, tensor: Tensor) -> Value:
    """Add nodes outside of the loop for a tensor of the body in all iterations, and return its value."""
    pending = [tensor]
    while pending:
        current = pending[-1]
        if current in loop.values:
            pending.pop()
            continue
        node = loop.body.graph.nodes[current.node]
        if node.controls or current.output:
            raise Refusal(f"the body has {node.op} with a control edge or several outputs")
        missing = [] if _is_leaf(loop, node) else [source for source in node.inputs if source not in loop.values]
        if missing:
            pending += missing
            continue
        loop.values[current] = _leaf(loop, node) if _is_leaf(loop, node) else _operation(loop, node)
        pending.pop()
    return loop.values[tensor]


def _is_leaf(loop: Loop, node: Node) -> bool:
    is_source = node.op in ("Const", "TensorListGetItem") or node.name in loop.body.arguments
    return is_source or indexed_tensor(loop, node) is not None


def _leaf(loop: Loop, node: Node) -> Value:
    graph = loop.graph
    if (whole := indexed_tensor(loop, node)) is not None:
        return Value(_rank(graph, whole) - 1, True, whole)
    if node.op == "TensorListGetItem":
        place = position_of(loop.body, node.inputs[0])
        slices = list_of(loop, place) if place is not None else None
        if slices is None or not is_counter(loop, node.inputs[1]):
            raise Refusal("a list is read that is also written, or not at the counter")
        return Value(_rank(graph, slices) - 1, True, slices)
    if node.op == "Const":
        array = loop.body.graph.array(Tensor(node.name))
        return Value(array.ndim, False, loop.make.constant(node.name, array))
    place = loop.body.arguments.index(node.name)
    if not is_invariant(loop, place):
        raise Refusal("an iteration reads the counter, or a result of the previous iteration")
    return Value(_rank(graph, loop.node.inputs[place]), False, loop.node.inputs[place])


def _rank(graph: Graph, tensor: Tensor) -> int:
    shape = graph.shape(tensor)
    if shape is None:
        raise Refusal("the rank of a slice, or of a loop-invariant tensor, is not known")
    return len(shape)


def _operation(loop: Loop, node: Node) -> Value:
    operands = [loop.values[tensor] for tensor in node.inputs]
    varies = any(value.varies for value in operands)
    is_bias = node.op == "BiasAdd" and attr(node, "data_format") != "NCHW" and not operands[1].varies
    if node.op in ONE_OPERAND or is_bias or (node.op in LAST_AXIS and operands[0].rank):
        return _make(loop, node, node.op, operands, operands[0].rank)
    if node.op in BINARY:
        rank = max(value.rank for value in operands)
        if varies and any(value.varies and value.rank != rank for value in operands):
            raise Refusal(f"{node.op} of a slice with a tensor of higher rank")
        return _make(loop, node, node.op, operands, rank)
    if node.op == "MatMul" and varies and attr(node, "T") not in COMPLEX:
        flags = {"adj_x": attr(node, "transpose_a"), "adj_y": attr(node, "transpose_b")}
        return _make(loop, node, "BatchMatMulV2", operands, 2, **flags)
    if node.op in SHAPED and operands[0].varies and loop.body.graph.is_constant(node.inputs[1]):
        return _shaped(loop, node, operands[0])
    raise Refusal(f"the body has {node.op}, which has no known form for all slices at once")


def _shaped(loop: Loop, node: Node, operand: Value) -> Value:
    """Add a reduction, transposition or reshape; its axes move by one, and the axis of iterations stays first."""
    old, rank = loop.body.graph.array(node.inputs[1]), operand.rank
    if node.op == "Reshape":
        if (old <= 0).any():
            raise Refusal("a slice is reshaped to sizes that are not all known")
        new, rank = np.concatenate([[-1], old]), old.size
    elif node.op == "Transpose":
        new = np.concatenate([[0], old % max(rank, 1) + 1])
    else:
        new = np.unique(old % max(rank, 1)) + 1
        rank = rank if attr(node, "keep_dims") else rank - new.size
    constant = loop.make.constant(node.name, new.astype(old.dtype))
    return _make(loop, node, node.op, [operand, Value(1, False, constant)], rank)


def _make(loop: Loop, node: Node, op: str, operands: list[Value], rank: int, **changed: bool) -> Value:
    made = loop.make.node(op, *(value.made for value in operands), like=node, role=node.name, **changed)
    return Value(rank, any(value.varies for value in operands), made)


LAW = WholeGraphLaw(
    run,
    rounds=True,
    after={"push_constants_into_bodies": "bodies have their constants then"},
    before={"fold_scale_before": "nodes that are in a loop are next to kernels then"},
    follows="drop_idle_layout",
)
