"""Analysis of While loops with a counter: counters, bounds, and the tensor lists that are read and written."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tfopt.graph.function_bodies import Body
from tfopt.graph.law import Graph, Maker, Node, Refusal, Tensor, attr

Length = int | tuple[Tensor, int]  # a number, or the open size of a tensor along an axis


class Index(NamedTuple):
    """An index in an iteration ``i`` of ``n``: ``start + ends * n + step * i``, where ``ends`` counts from the end."""

    start: int
    ends: int
    step: int


class Slice(NamedTuple):
    """A slice of an outer tensor that an iteration reads: the axis that it lacks, and the tensor of its number."""

    source: Tensor
    axis: int
    number: Tensor


@dataclass
class Loop:
    """A While node with its body and condition, the indices of its counters, and the number of iterations."""

    graph: Graph
    node: Node
    body: Body
    cond: Body
    make: Maker
    counters: set[int] = field(default_factory=set)
    length: Length = 0


def skip_identities(body: Body, tensor: Tensor) -> Tensor:
    """Return the source of a tensor: Identity nodes without control inputs are skipped."""
    while (node := body.graph.nodes[tensor.node]).op == "Identity" and not node.controls:
        tensor = node.inputs[0]
    return tensor


def position_of(body: Body, tensor: Tensor) -> int | None:
    """Return the number of the argument that a tensor is; None if it is none."""
    source = skip_identities(body, tensor).node
    return body.arguments.index(source) if source in body.arguments else None


def is_invariant(loop: Loop, position: int) -> bool:
    """Return whether an argument is loop-invariant: the body returns it unchanged."""
    return position_of(loop.body, loop.body.returned[position]) == position


def scalar_value(graph: Graph, tensor: Tensor) -> int | None:
    """Return the value of a scalar integer constant; None for any other tensor."""
    if not graph.is_constant(tensor):
        return None
    array = graph.array(tensor)
    return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else None


def is_iteration_count(loop: Loop, position: int) -> bool:
    """Return whether an argument counts the iterations: it starts at 0, and the body adds 1."""
    if scalar_value(loop.graph, loop.node.inputs[position]) != 0:
        return False
    node, argument = writer_of(loop, position), Tensor(loop.body.arguments[position])
    return node.op in ("AddV2", "Add") and any(
        skip_identities(loop.body, one) == argument and scalar_value(loop.body.graph, other) == 1
        for one, other in (node.inputs, node.inputs[::-1])
    )


def slice_of(loop: Loop, node: Node) -> Slice | None:
    """Return the slice of an outer tensor that a body node reads; None if it is none."""
    if node.op == "TensorListGetItem":
        position = position_of(loop.body, node.inputs[0])
        is_read_only = position is not None and is_invariant(loop, position)
        made = loop.graph.nodes[loop.node.inputs[position or 0].node]
        if not is_read_only or made.op != "TensorListFromTensor":
            raise Refusal("a list is read that is also written")
        return Slice(made.inputs[0], 0, node.inputs[1])
    source = _outer(loop, node.inputs[0]) if node.op in ("StridedSlice", "GatherV2") else None
    if source is None:
        return None
    return (_indexed if node.op == "StridedSlice" else _gathered)(loop, node, source)


def _outer(loop: Loop, tensor: Tensor) -> Tensor | None:
    """Return the outer tensor that a loop-invariant argument of the body is, or a copy of a constant there."""
    tensor = skip_identities(loop.body, tensor)
    if loop.body.graph.is_constant(tensor):
        array = loop.body.graph.array(tensor)
        constant = loop.make.constant(tensor.node, array)
        loop.graph.set_shape(constant, array.shape)
        return constant
    position = position_of(loop.body, tensor)
    return loop.node.inputs[position] if position is not None and is_invariant(loop, position) else None


def _indexed(loop: Loop, node: Node, source: Tensor) -> Slice | None:
    """Read a StridedSlice that selects one index and leaves all other axes whole."""
    graph, place = loop.body.graph, attr(node, "shrink_axis_mask").bit_length() - 1
    begin = graph.nodes[skip_identities(loop.body, node.inputs[1]).node]
    shape, ellipsis = loop.graph.shape(source), attr(node, "ellipsis_mask")
    if shape is None or place < 0 or attr(node, "shrink_axis_mask") != 1 << place or attr(node, "new_axis_mask"):
        return None
    has_begin = begin.op in ("Pack", "ExpandDims") and not attr(node, "begin_mask") >> place & 1
    if not has_begin or not graph.is_constant(node.inputs[3]):
        return None
    indices = begin.inputs if begin.op == "Pack" else begin.inputs[:1]
    whole = attr(node, "begin_mask") & attr(node, "end_mask") | ellipsis | 1 << place
    if whole != (1 << len(indices)) - 1 or (graph.array(node.inputs[3]) != 1).any():
        return None
    axis = place if ellipsis >> place or not ellipsis else len(shape) - len(indices) + place
    return Slice(source, axis, indices[place])


def _gathered(loop: Loop, node: Node, source: Tensor) -> Slice | None:
    axis, rank = scalar_value(loop.body.graph, node.inputs[2]), len(loop.graph.shape(source) or ())
    if axis is None or not rank or attr(node, "batch_dims") or index_of(loop, node.inputs[1]) is None:
        return None
    return Slice(source, axis % rank, node.inputs[1])


def index_of(loop: Loop, tensor: Tensor) -> Index | None:
    """Return the index that a body tensor computes from the counter, by sums and constant factors; None for others."""
    tensor = skip_identities(loop.body, tensor)
    if (number := scalar_value(loop.body.graph, tensor)) is not None:
        return Index(number, 0, 0)
    position = position_of(loop.body, tensor)
    if position is not None:
        if position in loop.counters:
            return Index(0, 0, 1)
        length = length_of(loop.graph, loop.node.inputs[position]) if is_invariant(loop, position) else None
        if isinstance(length, int):
            return Index(length, 0, 0)
        return Index(0, 1, 0) if length is not None and length == loop.length else None
    node = loop.body.graph.nodes[tensor.node]
    if node.op not in ("Add", "AddV2", "Sub", "Mul"):
        return None
    one, other = (index_of(loop, each) for each in node.inputs)
    if one is None or other is None:
        return None
    if node.op == "Mul":
        one, other = (one, other) if not other.ends and not other.step else (other, one)
        return None if other.ends or other.step else Index(*(each * other.start for each in one))
    sign = -1 if node.op == "Sub" else 1
    return Index(*(each + sign * least for each, least in zip(one, other, strict=True)))


def iterations(loop: Loop) -> Length:
    """Return how often a loop runs: it continues exactly while its counters are below a bound.

    Raises:
        Refusal: If the condition is another one.
    """
    ahead, lengths = [skip_identities(loop.cond, loop.cond.returned[0])], set()
    while ahead:
        node = loop.cond.graph.nodes[ahead.pop().node]
        if node.op == "LogicalAnd":
            ahead += [skip_identities(loop.cond, tensor) for tensor in node.inputs]
            continue
        if node.op != "Less":
            raise Refusal(f"the condition has {node.op}, which is no comparison of a counter")
        low, high = node.inputs
        if position_of(loop.cond, low) not in loop.counters:
            raise Refusal("the condition compares what is no counter from 0 by 1")
        lengths.add(_bound(loop, high))
    length = lengths.pop() if len(lengths) == 1 else None
    if length is None:
        raise Refusal("the number of rounds is not known to be that of slices")
    return length


def _bound(loop: Loop, high: Tensor) -> Length | None:
    position = position_of(loop.cond, high)
    if position is None:
        return scalar_value(loop.cond.graph, skip_identities(loop.cond, high))
    return length_of(loop.graph, loop.node.inputs[position]) if is_invariant(loop, position) else None


def length_of(graph: Graph, tensor: Tensor) -> Length | None:
    """Return what a scalar tensor is: a number, or the size of a tensor along an axis; None for others."""
    if (length := scalar_value(graph, tensor)) is not None:
        return length
    node = graph.nodes[tensor.node]
    if node.op != "StridedSlice" or attr(node, "shrink_axis_mask") != 1 or attr(node, "begin_mask"):
        return None
    whole = graph.nodes[node.inputs[0].node]
    shape = graph.shape(whole.inputs[0]) if whole.op == "Shape" else None
    if shape is None or not graph.is_constant(node.inputs[1]):
        return None
    axis = int(graph.array(node.inputs[1])[0])
    if not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return (whole.inputs[0], axis % len(shape)) if size is None else size


def writer_of(loop: Loop, position: int) -> Node:
    """Return the body node that computes an argument for the next iteration."""
    return loop.body.graph.nodes[skip_identities(loop.body, loop.body.returned[position]).node]


def check_written(loop: Loop, position: int) -> None:
    """Raise `Refusal` unless each iteration only writes its own element of a new list, and the body never reads it."""
    creator = loop.graph.nodes[loop.node.inputs[position].node]
    if creator.op != "TensorListReserve":
        raise Refusal(f"the results go into what {creator.op} makes, which may hold something already")
    node, argument = writer_of(loop, position), loop.body.arguments[position]
    if node.op != "TensorListSetItem" or skip_identities(loop.body, node.inputs[0]) != Tensor(argument):
        raise Refusal("a result is not written as one element of its list")
    if position_of(loop.body, node.inputs[1]) not in loop.counters:
        raise Refusal("a result is not written at the counter")
    _check_unread(loop, argument, node)
    length = length_of(loop.graph, creator.inputs[1])
    grows = length == 0 and attr(node, "resize_if_index_out_of_bounds")
    if length != loop.length and not grows:
        raise Refusal("the list of results is not known to be as long as that of slices")


def added_to(loop: Loop, position: int) -> Tensor | None:
    """Return the body tensor that each iteration adds to an argument of the loop, which it does not read; else None."""
    node, argument = writer_of(loop, position), loop.body.arguments[position]
    sides = [skip_identities(loop.body, tensor) for tensor in node.inputs] if node.op in ("Add", "AddV2") else []
    if sides.count(Tensor(argument)) != 1 or position in loop.counters:
        return None
    shapes = {loop.graph.shape(tensor) for tensor in (loop.node.inputs[position], Tensor(loop.node.name, position))}
    shape = shapes.pop()
    if shapes or shape is None or None in shape:
        raise Refusal("the shape of a sum over iterations is not known")
    _check_unread(loop, argument, node)
    return sides[1 - sides.index(Tensor(argument))]


def _check_unread(loop: Loop, argument: str, node: Node) -> None:
    """Raise `Refusal` if the body reads an argument elsewhere than in the node that computes its next value."""
    ahead = [argument, node.name]
    while ahead:
        for reader in loop.body.graph.readers(ahead.pop()):
            if reader.op == "Identity":
                ahead.append(reader.name)
            elif reader is not node:
                raise Refusal("a round reads the results of others")
