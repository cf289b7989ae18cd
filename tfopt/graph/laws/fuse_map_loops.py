"""Replace a loop that applies a function to each slice of a tensor by the function on the whole tensor.

    stack(f(x[0]), f(x[1]), …) = F(x)        F is f with an additional leading axis

    before    x -> TensorListFromTensor -> While(i from 0 to n: result[i] = f(x[i])) -> TensorListStack -> y
    after     x -> F -> y

``tf.map_fn`` and loops over a TensorArray have this form. f may consist of the operations of `batched`: elementwise
ones, products, Softmax, reductions, views. Slices come from a list, or are ``a[i]``, ``a[:, i]``, ``a[2 * i]`` or
``a[n - 1 - i]``: what is not read is sliced off first, or reversed. A sum ``s += f(a[i])`` becomes a sum over the new
axis.

Requires: lists that are written at the counter only, and read at an index that depends on it linearly; a counter from
0 in steps of 1; a known number of iterations, or the size of the axis that is read; no other result of the loop is
read; no effects. Iterations that read results of others are refused.
"""

from collections.abc import Iterator

from tfopt.graph.function_bodies import read_body
from tfopt.graph.law import Graph, Maker, Node, Outcome, Refusal, Tensor, WholeGraphLaw, attr
from tfopt.graph.matching.batched import Batch, Value, evaluate
from tfopt.graph.matching.control_flow_v1 import is_inside
from tfopt.graph.matching.counted_loops import (
    Loop,
    added_to,
    check_written,
    index_of,
    is_invariant,
    is_iteration_count,
    iterations,
    slice_of,
    writer_of,
)
from tfopt.graph.op_registry import identity


def run(graph: Graph) -> Iterator[Outcome]:
    library = {function.signature.name: function for function in graph.library.function}
    for node in graph.of_op("While", "StatelessWhile"):
        body, cond = (read_body(library[attr(node, name).name], library) for name in ("body", "cond"))
        if isinstance(body, str) or isinstance(cond, str):
            yield node.name, str(body if isinstance(body, str) else cond)
            continue
        loop = Loop(graph, node, body, cond, Maker(graph, node, []))
        try:
            _fuse(loop)
            yield node.name, None
        except Refusal as refusal:
            loop.make.undo()
            yield node.name, str(refusal)


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
    loop.length = iterations(loop)
    stacks, sums = _results(loop)
    batch = Batch(loop.make, loop.length if isinstance(loop.length, int) else None)
    for place in stacks:
        check_written(loop, place)
    stacked = {place: batch.moved(_built(batch, loop, writer_of(loop, place).inputs[2]), 0).made for place in stacks}
    totals = {place: batch.total(_built(batch, loop, tensor)) for place, tensor in sums.items()}
    for place, total in totals.items():
        result = loop.make.node("AddV2", node.inputs[place], total, like=writer_of(loop, place))
        graph.redirect(Tensor(node.name, place), result)
    for place, made in stacked.items():
        for stack in stacks[place]:
            kind = stack.attr["element_dtype"].type
            graph.remove(stack.name)
            graph.insert(identity(stack.name, made, kind, stack.controls, stack.device))
    graph.remove(node.name)


def _results(loop: Loop) -> tuple[dict[int, list[Node]], dict[int, Tensor]]:
    """Return the stacks of results by the argument that is their list, and what is added to arguments that are sums."""
    graph, node = loop.graph, loop.node
    stacks: dict[int, list[Node]] = {}
    sums: dict[int, Tensor] = {}
    for reader in graph.readers(node.name):
        for tensor in reader.inputs:
            if tensor.node != node.name:
                continue
            if reader.op == "TensorListStack" and reader.inputs[0] == tensor and reader.name not in graph.fed:
                stacks.setdefault(tensor.output, []).append(reader)
            elif (added := added_to(loop, tensor.output)) is not None:
                sums[tensor.output] = added
            else:
                raise Refusal(f"{reader.op} reads the loop, which is no list of results")
    if not stacks and not sums:
        raise Refusal("it makes no list of results")
    return stacks, sums


def _built(batch: Batch, loop: Loop, tensor: Tensor) -> Value:
    """Add nodes outside of the loop for a tensor of the body in all iterations, and return its value."""
    nodes = loop.body.graph.nodes

    def leaf(each: Tensor) -> Value | list[Tensor]:
        node = nodes[each.node]
        if node.controls or each.output:
            raise Refusal(f"the body has {node.op} with a control edge or several outputs")
        return _leaf(batch, loop, node) or list(node.inputs)

    return evaluate(tensor, leaf, lambda each, operands: batch.operation(nodes[each.node], operands))


def _leaf(batch: Batch, loop: Loop, node: Node) -> Value | None:
    """Return the value of a slice, a constant or an argument of the body; None for other nodes."""
    if (part := slice_of(loop, node)) is not None:
        return _slices(batch, loop, part.source, part.axis, part.number)
    if node.op == "Const":
        array = loop.body.graph.array(Tensor(node.name))
        return Value(array.ndim, loop.make.constant(node.name, array))
    if node.name not in loop.body.arguments:
        return None
    place = loop.body.arguments.index(node.name)
    if not is_invariant(loop, place):
        raise Refusal("an iteration reads the counter, or a result of the previous iteration")
    return Value(len(_shape(loop, loop.node.inputs[place])), loop.node.inputs[place])


def _shape(loop: Loop, tensor: Tensor) -> tuple[int | None, ...]:
    shape = loop.graph.shape(tensor)
    if shape is None:
        raise Refusal("the rank of a slice, or of a loop-invariant tensor, is not known")
    return shape


def _slices(batch: Batch, loop: Loop, source: Tensor, axis: int, tensor: Tensor) -> Value:
    shape, index, length = _shape(loop, source), index_of(loop, tensor), loop.length
    if index is None or not index.step:
        raise Refusal("a slice is not read at an index that the counter gives")
    if isinstance(length, int) and not index.ends:
        numbers = [index.start + index.step * number for number in range(length)]
        if not numbers or min(numbers) < 0 or max(numbers) >= (shape[axis] or max(numbers) + 1):
            raise Refusal("slices are read beyond the end of the tensor")
        return batch.slices(source, axis, numbers)
    if length != (source, axis) or index not in ((0, 0, 1), (-1, 1, -1)):
        raise Refusal("the number of rounds is not known to be that of the slices")
    return Value(len(shape) - 1, source if index.step == 1 else batch.reverse(source, axis), axis)


LAW = WholeGraphLaw(
    run,
    changes_shapes=True,
    rounds=True,
    after={"push_constants_into_bodies": "bodies have their constants then"},
    before={"fold_scale_before": "nodes that are in a loop are next to kernels then"},
    follows="drop_idle_layout",
)
