"""Groups of tensors whose channels can be divided by positive numbers, one for each channel.

    before    x -> Conv2D(K) -> BiasAdd(b) -> Relu -> Conv2D(L) -> y
    after     x -> Conv2D(K / s) -> BiasAdd(b / s) -> Relu -> Conv2D(s L) -> y

A group begins where channels are produced and ends at the kernels that read them:

    divided      kernels, batch norms and factors (such as the gain of a layer norm) that produce channels; constants
                 that are added to them
    multiplied   kernels that read them, along the axis of the input channels
    unchanged    operations f with f(x / s) = f(x) / s between them: Relu, LeakyRelu, pooling, sums of two tensors of
                 the group, layout operations that keep the order of the channels

Channels are the last axis. A Reshape may join it with the axes before it: the channels then repeat along the new axis.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Graph, Maker, Node, Refusal, Tensor, attr
from tfopt.graph.matching.affine_ops import FUSED
from tfopt.graph.matching.linear_ops import ADDING, PLAIN, TRANSPOSED, input_axis, output_axes

SAME_CHANNELS = {"Relu", "LeakyRelu", "Identity", "ResizeBilinear", "ResizeNearestNeighbor"}
SAME_CHANNELS |= {"SpaceToBatchND", "BatchToSpaceND"}
POOLING, REDUCTIONS, RESHAPING = ("MaxPool", "AvgPool"), ("Mean", "Sum", "Max"), ("Reshape", "Squeeze", "ExpandDims")
SIZES = ("Shape", "Size", "Rank")  # they do not read values
PRODUCTS = ("BatchMatMulV2", "Einsum")  # with a constant
FLOAT32 = 1
KERNEL, TRANSPOSED_DATA = 1, 2  # inputs of linear operations


@dataclass(frozen=True)
class Reader:
    """A kernel that reads the channels of a group along one axis, ``repeats`` times."""

    node: str
    kernel: int  # the number of the input
    axis: int
    data: Tensor
    channels: int  # with the repeated ones
    repeats: int


@dataclass(frozen=True)
class Divided:
    """A constant whose part for each channel is divided; it has the channels along ``axes``, ``repeats`` times."""

    node: str
    constant: int  # the number of the input
    axes: tuple[int, ...]
    repeats: int = 1


@dataclass
class ChannelGroup:
    """Tensors with common channels, and the constants that a division of these channels changes."""

    channels: int
    tensors: dict[Tensor, int] = field(default_factory=dict)  # how often the channels repeat along the last axis
    producers: list[str] = field(default_factory=list)
    divided: list[Divided] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)


def channel_groups(graph: Graph) -> Iterator[tuple[str, ChannelGroup | str]]:
    """Yield each node that produces channels, in topological order, with its group, or why there is none.

    A group is yielded once, with its first node.
    """
    seen: set[Tensor] = set()
    for name in list(graph.downstream()):
        tensor, count = Tensor(name), _produced(graph, graph.nodes[name])
        if count is None or tensor in seen:
            continue
        group = ChannelGroup(count)
        try:
            _grow(graph, group, tensor)
            yield name, group if group.readers else "no kernel reads it"
        except Refusal as refusal:
            yield name, str(refusal)
        seen |= group.tensors.keys()


def divide_channels(graph: Graph, group: ChannelGroup, scale: NDArray[np.float64]) -> None:
    """Divide the channels of all tensors of a group by their scales; constants that others read are copied."""
    copies: dict[tuple[Tensor, tuple[int, ...], int], Tensor] = {}

    def replace(name: str, number: int, axes: tuple[int, ...], vector: NDArray[np.float64]) -> None:
        node = graph.nodes[name]
        key = node.inputs[number], axes, len(vector)
        if key not in copies:
            array = graph.array(node.inputs[number])
            result = _broadcast(array, axes, vector)
            copies[key] = Maker(graph, node, []).constant("scaled", result, like=array)
        inputs = [copies[key] if index == number else tensor for index, tensor in enumerate(node.inputs)]
        graph.replace(node, inputs=inputs)

    for part in group.divided:
        replace(part.node, part.constant, part.axes, 1 / np.tile(scale, part.repeats))
    for reader in group.readers:
        replace(reader.node, reader.kernel, (reader.axis,), np.tile(scale, reader.repeats))


def _broadcast(array: NDArray[np.generic], axes: tuple[int, ...], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a constant times a vector along its axes; a constant that lacks these axes gets them."""
    sizes = [size if axis - array.ndim in axes or axis in axes else 1 for axis, size in enumerate(array.shape)]
    return array.astype(np.float64) * (vector if math.prod(sizes) != vector.size else vector.reshape(sizes))


def _produced(graph: Graph, node: Node) -> int | None:
    """Return how many channels a node produces; None if it is none of the operations that produce them."""
    if node.op in (*PLAIN, *TRANSPOSED) and graph.is_constant(node.inputs[KERNEL]):
        kernel = graph.array(node.inputs[KERNEL])
        return int(np.prod([kernel.shape[axis] for axis in output_axes(node)]))
    if node.op in FUSED and all(map(graph.is_constant, node.inputs[1:3])):
        return int(graph.array(node.inputs[1]).size)
    factor = _factor(graph, node)
    return None if factor is None else int(graph.array(node.inputs[factor]).size)


def _factor(graph: Graph, node: Node) -> int | None:
    """Return the number of the input of a product that is one factor for each channel."""
    if node.op != "Mul":
        return None
    shape = graph.shape(Tensor(node.name))
    for number, tensor in enumerate(node.inputs):
        if graph.is_constant(tensor) and not graph.is_constant(node.inputs[1 - number]):
            array = graph.array(tensor)
            return number if shape and array.ndim and array.size == array.shape[-1] == shape[-1] else None
    return None


def _grow(graph: Graph, group: ChannelGroup, start: Tensor) -> None:
    """Add all tensors that have the channels of a tensor, and raise Refusal with the reason if one cannot be divided.

    Tensors before and after those of the group are added until it begins with producers and ends with kernels.
    """
    queue = [(start, 1)]
    while queue:
        tensor, repeats = queue.pop()
        if tensor in group.tensors:
            if group.tensors[tensor] != repeats:
                raise Refusal("channels are repeated in two ways")
            continue
        group.tensors[tensor] = repeats
        _check_tensor(graph, tensor, group.channels * repeats)
        queue += _before(graph, group, tensor, repeats)
        for reader in graph.readers(tensor.node):
            queue += _after(graph, group, tensor, repeats, reader)


def _check_tensor(graph: Graph, tensor: Tensor, size: int) -> None:
    node, shape = graph.nodes[tensor.node], graph.shape(tensor)
    if tensor.node in graph.fed or tensor.node in graph.fetched:
        raise Refusal("it is an input or an output of the model")
    if tensor.output or attr(node, "T") != FLOAT32:
        raise Refusal(f"{node.op} is not in float32")
    if not shape or shape[-1] != size:
        raise Refusal("the channels are not the last axis, or their number is not known")


def _before(graph: Graph, group: ChannelGroup, tensor: Tensor, repeats: int) -> Iterator[tuple[Tensor, int]]:
    """Record what produces a tensor, and yield the tensors before it that have its channels."""
    node = graph.nodes[tensor.node]
    if (count := _produced(graph, node)) is not None:
        if attr(node, "is_training"):
            raise Refusal("a batch norm is in training mode")
        if count != group.channels or repeats != 1 or _channels_first(node):
            raise Refusal(f"{node.op} has other channels")
        factor = _factor(graph, node)
        axes = output_axes(node) if factor is None and node.op not in FUSED else (-1,)
        group.producers.append(node.name)
        numbers = (1, 2) if node.op in FUSED else (KERNEL if factor is None else factor,)
        group.divided += [Divided(node.name, number, axes) for number in numbers]
        if node.op in (*PLAIN, *TRANSPOSED):
            yield from ((Tensor(other.name), 1) for other in _sharing(graph, node, KERNEL))
        return
    if node.op in ADDING:
        for number, other in enumerate(node.inputs):
            if graph.is_constant(other):
                if _channels_first(node):
                    raise Refusal("the channels are not the last axis")
                group.divided.append(Divided(node.name, number, (-1,), repeats))
            else:
                yield other, repeats
        return
    times = _times(graph, node)
    if repeats % times:
        raise Refusal(f"{node.op} mixes channels")
    yield node.inputs[0], repeats // times


def _after(graph: Graph, group: ChannelGroup, tensor: Tensor, repeats: int, node: Node) -> Iterator[tuple[Tensor, int]]:
    """Record a node that reads a tensor of the group, and yield the tensors after it that have the channels."""
    if node.op in SIZES or tensor not in node.inputs:
        return
    data = TRANSPOSED_DATA if node.op in TRANSPOSED else 0
    if node.op in (*PLAIN, *TRANSPOSED, *PRODUCTS):
        axis = _kernel_axis(graph, node, group.channels * repeats)
        if isinstance(axis, str) or node.inputs.index(tensor) != data or node.inputs.count(tensor) > 1:
            raise Refusal(axis if isinstance(axis, str) else f"{node.op} reads it as its kernel")
        group.readers.append(Reader(node.name, KERNEL, axis, tensor, group.channels * repeats, repeats))
        yield from ((other.inputs[data], repeats) for other in _sharing(graph, node, KERNEL))
    elif node.op in ADDING:
        yield Tensor(node.name), repeats
    else:
        if node.inputs[0] != tensor:
            raise Refusal(f"{node.op} is in between")
        yield Tensor(node.name), repeats * _times(graph, node)


def _sharing(graph: Graph, node: Node, number: int) -> Iterator[Node]:
    """Yield the other nodes with the kernel of a node, which has to be the same for all of them."""
    for other in graph.readers(node.inputs[number].node):
        if other.name != node.name:
            if other.op != node.op or other.inputs[number] != node.inputs[number]:
                raise Refusal("another operation reads its kernel")
            yield other


def _kernel_axis(graph: Graph, node: Node, count: int) -> int | str:
    """Return the axis of a kernel along which it reads channels, or why they cannot be multiplied there."""
    if not graph.is_constant(node.inputs[KERNEL]):
        return f"{node.op} has no constant kernel"
    kernel = graph.array(node.inputs[KERNEL])
    if node.op == "Einsum":
        return _einsum_axis(str(attr(node, "equation")))
    if node.op == "BatchMatMulV2":
        axis: int | None = -1 if attr(node, "adj_y") else -2
    else:
        axis = input_axis(node) or -2
    if attr(node, "transpose_a") or attr(node, "adj_x") or _channels_first(node):
        return f"the channels that {node.op} reads are not the last axis"
    assert axis is not None
    return axis if kernel.shape[axis] == count else f"{node.op} has groups"


def _einsum_axis(equation: str) -> int | str:
    """Return the axis of the second operand along which an Einsum sums products with the last axis of the first.

    >>> _einsum_axis("abc,cde->abde")
    -3
    """
    operands, _, result = equation.replace(" ", "").partition("->")
    data, _, kernel = operands.partition(",")
    if "." in equation or not data or kernel.count(data[-1]) != 1 or data[-1] in result or data.count(data[-1]) > 1:
        return "Einsum does not sum over the channels"
    return kernel.index(data[-1]) - len(kernel)


def _channels_first(node: Node) -> bool:
    return str(attr(node, "data_format", "NHWC")).startswith("NC")


def _times(graph: Graph, node: Node) -> int:
    """Return how often the channels of the first input of a node repeat in those of its result.

    Raises:
        Refusal: If the node is no operation that keeps the channels and commutes with their division.
    """
    shapes = [graph.shape(tensor) for tensor in (node.inputs[0], Tensor(node.name))] if node.inputs else [None]
    if node.op in SAME_CHANNELS or (node.op in POOLING and not _channels_first(node) and _spatial(node)):
        return 1
    if node.op in RESHAPING and all(shape and shape[-1] for shape in shapes):
        old, new = (int(shape[-1] or 1) for shape in shapes if shape)
        if new % old == 0:  # in this order of the elements, rows of the result consist of whole rows of the input
            return new // old
    constants: Mapping[str, int] = {**dict.fromkeys(REDUCTIONS, 1), "Pad": 1}
    if node.op in constants and graph.is_constant(node.inputs[1]) and shapes[0]:
        array, rank = graph.array(node.inputs[1]), len(shapes[0])
        untouched = not array[-1].any() if node.op == "Pad" else rank - 1 not in array.ravel() % rank
        if untouched:
            return 1
    raise Refusal(f"{node.op} is in between")


def _spatial(node: Node) -> bool:
    """Return True if a pooling has windows along the axes between the first and the last only."""
    return bool(attr(node, "ksize")[-1] == 1)
