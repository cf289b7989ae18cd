"""Analysis of While loops with a counter: counters, bounds, and the tensor lists that are read and written."""

from dataclasses import dataclass, field

from tfopt.graph.function_bodies import Body
from tfopt.graph.law import Maker, attr
from tfopt.graph.matching.parts import size_along
from tfopt.graph.mutable_graph import Graph, Node, Tensor


class Refusal(Exception):  # noqa: N818  (not an error of the user)
    """Raised with the reason when a loop cannot be proven to be a map over slices."""


@dataclass
class Value:
    """The counterpart, in the outer graph, of a tensor in the loop body.

    Attributes:
        rank: Rank of the tensor in the body.
        varies: True if the value differs between iterations; the outer tensor then has one more axis.
        made: The tensor in the outer graph.
    """

    rank: int
    varies: bool
    made: Tensor


@dataclass
class Loop:
    """A While node with its body and condition, the indices of its counters, and the outer values of body tensors."""

    graph: Graph
    node: Node
    body: Body
    cond: Body
    make: Maker
    counters: set[int] = field(default_factory=set)
    values: dict[Tensor, Value] = field(default_factory=dict)


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


def list_of(loop: Loop, position: int) -> Tensor | None:
    """Return the tensor whose slices are the elements of a list argument; None for other arguments."""
    node = loop.graph.nodes[loop.node.inputs[position].node]
    if node.op != "TensorListFromTensor" or not is_invariant(loop, position):
        return None
    return node.inputs[0]


def sources(loop: Loop) -> list[Tensor]:
    """Return the outer tensors from which each iteration reads one slice."""
    lists = [slices for position in range(len(loop.node.inputs)) if (slices := list_of(loop, position))]
    indexed_tensors = [slices for node in loop.body.graph.nodes.values() if (slices := indexed_tensor(loop, node))]
    return list(dict.fromkeys([*lists, *indexed_tensors]))


def indexed_tensor(loop: Loop, node: Node) -> Tensor | None:
    """Return the outer tensor ``a`` if a body node computes ``a[i]`` with the loop counter ``i``; else None."""
    graph = loop.body.graph
    if node.op == "StridedSlice":
        others = [attr(node, f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis")]
        begin = graph.nodes[skip_identities(loop.body, node.inputs[1]).node]
        if attr(node, "shrink_axis_mask") != 1 or any(others) or begin.op != "Pack" or len(begin.inputs) != 1:
            return None
        index = begin.inputs[0]
    elif node.op == "GatherV2" and scalar_value(graph, node.inputs[2]) == 0 and not attr(node, "batch_dims"):
        index = node.inputs[1]
    else:
        return None
    position = position_of(loop.body, node.inputs[0])
    if position is None or not is_counter(loop, index) or not is_invariant(loop, position):
        return None
    return loop.node.inputs[position]


def check_bounds(loop: Loop, slices: Tensor) -> None:
    """Raise `Refusal` unless the loop continues exactly while the counter is below the number of slices."""
    ahead, has_bound = [skip_identities(loop.cond, loop.cond.returned[0])], False
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
        if not _is_bound(loop, high, slices):
            raise Refusal("the number of rounds is not known to be that of the slices")
        has_bound = True
    if not has_bound:
        raise Refusal("the condition is no comparison of a counter")


def _is_bound(loop: Loop, high: Tensor, slices: Tensor) -> bool:
    position = position_of(loop.cond, high)
    if position is None:
        bound = scalar_value(loop.cond.graph, skip_identities(loop.cond, high))
        return bound is not None and bound == size_along(loop.graph, slices, 0)
    return is_invariant(loop, position) and _is_length(loop.graph, loop.node.inputs[position], slices)


def _is_length(graph: Graph, tensor: Tensor, slices: Tensor) -> bool:
    """Return whether a scalar tensor equals the size of the first axis of `slices`."""
    if (length := scalar_value(graph, tensor)) is not None:
        return length == size_along(graph, slices, 0)
    node = graph.nodes[tensor.node]
    if node.op != "StridedSlice" or attr(node, "shrink_axis_mask") != 1 or attr(node, "begin_mask"):
        return False
    whole = graph.nodes[node.inputs[0].node]
    begin = node.inputs[1]
    if whole.op != "Shape" or whole.inputs[0] != slices or not graph.is_constant(begin):
        return False
    return bool(graph.array(begin).tolist() == [0])


def writer_of(loop: Loop, position: int) -> Node:
    """Return the body node that computes an argument for the next iteration."""
    return loop.body.graph.nodes[skip_identities(loop.body, loop.body.returned[position]).node]


def is_counter(loop: Loop, tensor: Tensor) -> bool:
    """Return whether a body tensor is a loop counter."""
    return position_of(loop.body, tensor) in loop.counters


def check_written(loop: Loop, position: int) -> None:
    """Raise `Refusal` unless each iteration only writes its own element of a new list, and the body never reads it."""
    creator = loop.graph.nodes[loop.node.inputs[position].node]
    if creator.op != "TensorListReserve":
        raise Refusal(f"the results go into what {creator.op} makes, which may hold something already")
    node, argument = writer_of(loop, position), loop.body.arguments[position]
    if node.op != "TensorListSetItem" or skip_identities(loop.body, node.inputs[0]) != Tensor(argument):
        raise Refusal("a result is not written as one element of its list")
    if not is_counter(loop, node.inputs[1]):
        raise Refusal("a result is not written at the counter")
    ahead = [argument, node.name]
    while ahead:
        for reader in loop.body.graph.readers(ahead.pop()):
            if reader.op == "Identity":
                ahead.append(reader.name)
            elif reader is not node:
                raise Refusal("a round reads the results of others")
    if not any(_is_length(loop.graph, creator.inputs[1], slices) for slices in sources(loop)):
        raise Refusal("the list of results is not known to be as long as that of slices")
