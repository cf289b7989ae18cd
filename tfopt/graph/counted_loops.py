"""What is known of a While that counts: its counters, its bounds, the lists that it reads and writes."""

from dataclasses import dataclass, field

from tfopt.graph.function_bodies import Body
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.rewrite_rule import attr


class Refusal(Exception):  # noqa: N818  (it is no error)
    """Why a loop is not known to be a map."""


@dataclass
class Value:
    """What a tensor of the body stands for outside.

    Attributes:
        rank: Axes of a slice; of what stays the same, its own.
        varies: Whether it differs from round to round.
        made: Where it is outside.
    """

    rank: int
    varies: bool
    made: Tensor


@dataclass
class Loop:
    """A While in a graph, its functions, and the places of its counters; by tensor of the body, what it is outside."""

    graph: Graph
    node: Node
    body: Body
    cond: Body
    counters: set[int] = field(default_factory=set)
    values: dict[Tensor, Value] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)


def behind(body: Body, tensor: Tensor) -> Tensor:
    """The tensor behind every Identity."""
    while (node := body.graph.nodes[tensor.node]).op == "Identity" and not node.controls:
        tensor = node.inputs[0]
    return tensor


def _returned(loop: Loop, place: int) -> Tensor:
    return behind(loop.body, loop.body.returned[place])


def stays(loop: Loop, place: int) -> bool:
    """Whether an argument is handed to the next round as it is."""
    return _returned(loop, place) == Tensor(loop.body.arguments[place])


def number(graph: Graph, tensor: Tensor) -> int | None:
    """A constant that is one number."""
    if not graph.is_constant(tensor):
        return None
    array = graph.array(tensor)
    return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else None


def counts(loop: Loop, place: int) -> bool:
    """Whether an argument is the number of the round."""
    if number(loop.graph, loop.node.inputs[place]) != 0:
        return False
    node = loop.body.graph.nodes[_returned(loop, place).node]
    if node.op not in ("AddV2", "Add"):
        return False
    for one, other in (node.inputs, node.inputs[::-1]):
        if behind(loop.body, one) == Tensor(loop.body.arguments[place]) and number(loop.body.graph, other) == 1:
            return True
    return False


def list_of(loop: Loop, place: int) -> Tensor | None:
    """The tensor whose slices a list argument holds; None for anything else."""
    node = loop.graph.nodes[loop.node.inputs[place].node]
    if node.op != "TensorListFromTensor" or not stays(loop, place):
        return None
    return node.inputs[0]


def sources(loop: Loop) -> list[Tensor]:
    """The tensors of which each round reads one slice."""
    lists = [slices for place in range(len(loop.node.inputs)) if (slices := list_of(loop, place))]
    taken = [slices for node in loop.body.graph.nodes.values() if (slices := indexed(loop, node))]
    return list(dict.fromkeys([*lists, *taken]))


def indexed(loop: Loop, node: Node) -> Tensor | None:
    """The tensor of which a node of the body takes the slice of its round, ``a[i]``; None for anything else."""
    graph = loop.body.graph
    if node.op == "StridedSlice":
        others = [attr(node, f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis")]
        begin = graph.nodes[behind(loop.body, node.inputs[1]).node]
        if attr(node, "shrink_axis_mask") != 1 or any(others) or begin.op != "Pack" or len(begin.inputs) != 1:
            return None
        index = begin.inputs[0]
    elif node.op == "GatherV2" and number(graph, node.inputs[2]) == 0 and not attr(node, "batch_dims"):
        index = node.inputs[1]
    else:
        return None
    found = behind(loop.body, node.inputs[0])
    if found.node not in loop.body.arguments or not is_counter(loop, index):
        return None
    place = loop.body.arguments.index(found.node)
    return loop.node.inputs[place] if stays(loop, place) else None


def check_bounds(loop: Loop, slices: Tensor) -> None:
    """Refuse unless the loop goes on exactly while the counter is below the number of slices."""
    ahead, found = [behind(loop.cond, loop.cond.returned[0])], False
    while ahead:
        node = loop.cond.graph.nodes[ahead.pop().node]
        if node.op == "LogicalAnd":
            ahead += [behind(loop.cond, tensor) for tensor in node.inputs]
            continue
        if node.op != "Less":
            raise Refusal(f"the condition has {node.op}, which is no comparison of a counter")
        low, high = (behind(loop.cond, tensor) for tensor in node.inputs)
        if low.node not in loop.cond.arguments or loop.cond.arguments.index(low.node) not in loop.counters:
            raise Refusal("the condition compares what is no counter from 0 by 1")
        if not _is_bound(loop, high, slices):
            raise Refusal("the number of rounds is not known to be that of the slices")
        found = True
    if not found:
        raise Refusal("the condition is no comparison of a counter")


def _is_bound(loop: Loop, high: Tensor, slices: Tensor) -> bool:
    graph = loop.cond.graph
    if high.node in loop.cond.arguments:
        place = loop.cond.arguments.index(high.node)
        return stays(loop, place) and _is_length(loop.graph, loop.node.inputs[place], slices)
    known, shape = number(graph, high), loop.graph.shape(slices)
    return known is not None and bool(shape) and known == shape[0]  # type: ignore[index]  # it has a rank


def _is_length(graph: Graph, tensor: Tensor, slices: Tensor) -> bool:
    """Whether a tensor is the size of the first axis of another."""
    shape = graph.shape(slices)
    known = number(graph, tensor)
    if known is not None:
        return bool(shape) and known == shape[0]  # type: ignore[index]
    node = graph.nodes[tensor.node]
    if node.op != "StridedSlice" or attr(node, "shrink_axis_mask") != 1 or attr(node, "begin_mask"):
        return False
    whole = graph.nodes[node.inputs[0].node]
    begin = node.inputs[1]
    if whole.op != "Shape" or whole.inputs[0] != slices or not graph.is_constant(begin):
        return False
    return bool(graph.array(begin).tolist() == [0])


def written(loop: Loop, place: int) -> Node:
    """What makes an argument of the next round."""
    return loop.body.graph.nodes[_returned(loop, place).node]


def is_counter(loop: Loop, tensor: Tensor) -> bool:
    """Whether a tensor of the body is the number of the round."""
    found = behind(loop.body, tensor)
    return found.node in loop.body.arguments and loop.body.arguments.index(found.node) in loop.counters


def check_written(loop: Loop, place: int) -> None:
    """Refuse unless each round writes its own element of a new list, and nothing reads it."""
    made = loop.graph.nodes[loop.node.inputs[place].node]
    if made.op != "TensorListReserve":
        raise Refusal(f"the results go into what {made.op} makes, which may hold something already")
    node, argument = written(loop, place), loop.body.arguments[place]
    if node.op != "TensorListSetItem" or behind(loop.body, node.inputs[0]) != Tensor(argument):
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
    if not any(_is_length(loop.graph, made.inputs[1], slices) for slices in sources(loop)):
        raise Refusal("the list of results is not known to be as long as that of slices")
