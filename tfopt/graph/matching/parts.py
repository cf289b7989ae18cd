"""Parts of a tensor along an axis: which part of another tensor a tensor is, and whether several are all of it."""

from typing import Any, NamedTuple

from tfopt.graph.law import Graph, Node, Tensor, attr

UNEVEN = 0  # the number of parts of different sizes, or of parts whose number is not known


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
    if any(graph.is_constant(each) and graph.nodes[each.node].controls for each in node.inputs):
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


def joined_axis(graph: Graph, stack: Node, rank: int) -> int | None:
    """Return the axis along which a Pack or ConcatV2 joins tensors, given the rank of its result; None if not known."""
    if stack.op == "Pack":
        return int(attr(stack, "axis")) % max(rank, 1)
    return int(graph.array(stack.inputs[-1])) % max(rank, 1) if graph.is_constant(stack.inputs[-1]) else None


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
    singles = ellipsis = 0
    if node.op == "StridedSlice":
        singles, ellipsis = attr(node, "shrink_axis_mask"), attr(node, "ellipsis_mask")
        if attr(node, "new_axis_mask") or (graph.array(node.inputs[3]) != 1).any():
            return None
    count = graph.array(bounds[0]).size
    axes = {place: place + (len(shape) - count if ellipsis and ellipsis < 1 << place else 0) for place in range(count)}
    bounded = [place for place in axes if not ellipsis >> place & 1]
    ranges = {place: range_along(graph, node, place, shape[axes[place]]) for place in bounded}
    cut = [place for place, each in ranges.items() if each != (0, shape[axes[place]]) or singles >> place & 1]
    if len(cut) != 1:
        return None
    axis, size = axes[cut[0]], shape[axes[cut[0]]]
    begin, end = ranges[cut[0]] or (0, None)
    if end is None or not 0 <= begin < end <= (size or end):
        return None
    width = end - begin
    even = size is not None and size % width == begin % width == 0
    return Part(source, axis, begin // width, (size or 0) // width if even else UNEVEN, bool(singles))


def range_along(graph: Graph, node: Node, axis: int, size: int | None) -> tuple[int, int | None] | None:
    """Return the first index that a slice reads along an axis, and the index after the last; `size` if to the end.

    It is a StridedSlice or Slice with constant bounds, of stride 1 along the axis; ``size`` is that of its input there.
    ``axis`` is the place in the bounds, which an ellipsis before it shifts.
    None is returned if a bound counts from the end of an axis of unknown size.
    """
    begin, end = (int(graph.array(tensor)[axis]) for tensor in node.inputs[1:3])
    if node.op == "Slice":
        return begin, size if end == -1 else begin + end
    masks = ("shrink_axis_mask", "begin_mask", "end_mask")
    is_index, from_start, to_end = (bool(attr(node, mask) >> axis & 1) for mask in masks)
    if size is None and ((begin < 0 and not from_start) or (end < 0 and not to_end and not is_index)):
        return None
    first, last = (bound + (size or 0) if bound < 0 else bound for bound in (begin, end))
    if is_index:
        return first, first + 1
    most = max(first, last) if size is None else size
    return 0 if from_start else min(max(first, 0), most), size if to_end else min(max(last, 0), most)


def slice_vector(node: Node, vector: tuple[Any, ...], begin: int, end: int, stride: int) -> Any:
    """Return the part of a vector that a StridedSlice with these bounds selects; None for an index beyond its end."""
    if attr(node, "shrink_axis_mask"):
        return vector[begin] if -len(vector) <= begin < len(vector) else None
    from_start, to_end = attr(node, "begin_mask") & 1, attr(node, "end_mask") & 1
    return vector[None if from_start else begin : None if to_end else end : stride]


def size_along(graph: Graph, tensor: Tensor, axis: int) -> int | None:
    """Return the size of a tensor along an axis; None if it is not known."""
    shape = graph.shape(tensor)
    return None if shape is None else shape[axis]


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
