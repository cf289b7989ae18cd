"""Parts of a tensor along an axis: which part of another tensor a tensor is, and whether several are all of it."""

from typing import NamedTuple

from tfopt.graph.law import attr
from tfopt.graph.mutable_graph import Graph, Node, Tensor

UNEVEN = 0  # the number of parts of different sizes


class Part(NamedTuple):
    """One of several equal parts of a tensor.

    Attributes:
        source: The tensor.
        axis: The axis along which it is divided.
        number: The number of the part, from 0 on.
        total: The number of all parts; `UNEVEN` if others have different sizes.
        is_index: True if the part lacks the axis, as `Unpack` takes it; False if it keeps it, as `Split` does.
    """

    source: Tensor
    axis: int
    number: int
    total: int
    is_index: bool


def part_of(graph: Graph, tensor: Tensor) -> Part | None:
    """Return which part of another tensor a tensor is: of Unpack, Split, slices or an index; None for others."""
    node = graph.nodes[tensor.node]
    if node.op not in READERS or node.name in graph.fed or node.controls:
        return None
    return READERS[node.op](graph, node, tensor.output)


def why_not_all(parts: list[Part]) -> str | None:
    """Return why parts of one tensor are not all of it, in order; None if they are."""
    first = parts[0]
    if any((part.axis, part.is_index) != (first.axis, first.is_index) for part in parts):
        return "the factors are parts along different axes"
    if any(part.total == UNEVEN or part.total != first.total for part in parts):
        return "the parts have different sizes"
    if [part.number for part in parts] != list(range(first.total)):
        return "the factors are not all parts of one tensor, in order"
    return None


def _unpacked(graph: Graph, node: Node, output: int) -> Part | None:
    shape = graph.shape(node.inputs[0])
    if shape is None:
        return None
    return Part(node.inputs[0], attr(node, "axis") % len(shape), output, attr(node, "num"), is_index=True)


def _split(graph: Graph, node: Node, output: int) -> Part | None:
    source, axis = (node.inputs[place] for place in ((1, 0) if node.op == "Split" else (0, 2)))
    shape = graph.shape(source)
    if shape is None or not graph.is_constant(axis):
        return None
    count = int(attr(node, "num_split"))
    if node.op == "SplitV":
        sizes = graph.array(node.inputs[1]).tolist() if graph.is_constant(node.inputs[1]) else [0, 1]
        count = count if len(set(sizes)) == 1 else UNEVEN
    return Part(source, int(graph.array(axis)) % len(shape), output, count, is_index=False)


def _sliced(graph: Graph, node: Node, output: int) -> Part | None:
    """Read a StridedSlice or Slice that leaves out elements along one axis only."""
    source, bounds = node.inputs[0], node.inputs[1:]
    shape = graph.shape(source)
    if shape is None or not all(map(graph.is_constant, bounds)):
        return None
    ranges = _ranges(graph, node, shape)
    cut = [axis for axis, each in enumerate(ranges or ()) if each is not None]
    if ranges is None or len(cut) != 1:
        return None
    (axis,) = cut
    begin, end = ranges[axis] or (0, 0)
    is_index = node.op == "StridedSlice" and bool(attr(node, "shrink_axis_mask"))
    size, width = shape[axis], end - begin
    if size is None or not 0 <= begin < end <= size:
        return None
    even = size % width == begin % width == 0
    return Part(source, axis, begin // width, size // width if even else UNEVEN, is_index)


def _ranges(graph: Graph, node: Node, shape: tuple[int | None, ...]) -> list[tuple[int, int] | None] | None:
    """Return the first and the last index along each axis, None for all of an axis; None for other slices."""
    begins, ends = (graph.array(tensor).tolist() for tensor in node.inputs[1:3])
    ranges: list[tuple[int, int] | None] = []
    if node.op == "Slice":
        for begin, length, size in zip(begins, ends, shape, strict=True):
            end = size if length == -1 else begin + length
            if end is None and begin:
                return None
            ranges.append(None if begin == 0 and end == size else (begin, end or 0))
        return ranges
    if attr(node, "ellipsis_mask") or attr(node, "new_axis_mask") or (graph.array(node.inputs[3]) != 1).any():
        return None
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        is_index = attr(node, "shrink_axis_mask") >> axis & 1
        masks = [attr(node, mask) >> axis & 1 for mask in ("begin_mask", "end_mask")]
        size = shape[axis]
        if size is None:
            if is_index or masks[0] + (begin == 0) == 0 or not masks[1]:
                return None
            ranges.append(None)
            continue
        first = 0 if masks[0] and not is_index else begin + size * (begin < 0)
        last = first + 1 if is_index else size if masks[1] else min(end + size * (end < 0), size)
        ranges.append(None if (first, last) == (0, size) and not is_index else (first, last))
    return ranges


def _gathered(graph: Graph, node: Node, output: int) -> Part | None:
    source, index, axis = node.inputs
    shape = graph.shape(source)
    if shape is None or not graph.is_constant(index) or not graph.is_constant(axis) or attr(node, "batch_dims"):
        return None
    place, count = int(graph.array(axis)) % len(shape), shape[int(graph.array(axis)) % len(shape)]
    if graph.array(index).ndim or count is None:
        return None
    return Part(source, place, int(graph.array(index)), count, is_index=True)


def _squeezed(graph: Graph, node: Node, output: int) -> Part | None:
    """Read a Squeeze of a part with one element along the axis."""
    part = part_of(graph, node.inputs[0])
    shape = None if part is None else graph.shape(part.source)
    if part is None or shape is None or part.is_index or part.total != shape[part.axis]:
        return None
    axes = {axis % len(shape) for axis in attr(node, "squeeze_dims")}
    return part._replace(is_index=True) if axes == {part.axis} else None


READERS = {"Unpack": _unpacked, "Split": _split, "SplitV": _split, "StridedSlice": _sliced, "Slice": _sliced}
READERS |= {"GatherV2": _gathered, "Squeeze": _squeezed}
