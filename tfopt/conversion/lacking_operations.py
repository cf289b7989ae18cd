"""Operations that a format lacks, written with others that it has.

- LiteRT has no slice that also adds axes, as ``mask[:, None, :]``, if more than one size is open: it becomes a slice
  and ``ExpandDims``. It has no ``Roll``, as in windows of image transformers: it becomes two slices and their
  concatenation. Of int64 it has no ``Abs`` and no ``Sign``, but ``Maximum`` and ``Minimum``.
- OpenVINO has no operations of XLA, such as the ``XlaDynamicUpdateSlice`` of Keras 3: those of constants are folded.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law import Maker, attr
from tfopt.graph.law_runner import graph_of, optimize
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import attribute, attributes
from tfopt.graph.report import Report
from tfopt.graph_def import INT32, INT64, GraphDef, NodeDef, nodes

SLICE, ROLL, ABS, SIGN, UPDATE = "StridedSlice", "Roll", "Abs", "Sign", "XlaDynamicUpdateSlice"
SHAPES = "_output_shapes"  # attribute of the nodes of a SavedModel
SPECS = ("begin", "end", "strides")  # inputs of a slice after the first one


def has_any(graph: GraphDef, lacking: Collection[str]) -> bool:
    """Return True if a graph has one of the operations in a form that `replace_all` replaces."""
    return bool(lacking) and any(node.op in lacking and _is_lacking(node) for node in nodes(graph))


def replace_all(frozen: Frozen, lacking: Collection[str]) -> Frozen:
    """Return the model with others in place of these operations; those that cannot be replaced stay."""
    if UPDATE in lacking:
        frozen = optimize(frozen, ("fold_constants",), Report())
    graph = graph_of(frozen)
    rewrite = {SLICE: _separate_new_axes, ROLL: _concatenate_parts, ABS: _compare_integers, SIGN: _compare_integers}
    for node in graph.of_op(*(rewrite.keys() & set(lacking))):
        rewrite[node.op](graph, node)
    return replace(frozen, graph=graph.to_graph_def())


def _is_lacking(node: NodeDef) -> bool:
    if node.op in (ABS, SIGN):
        return bool(node.attr["T"].type == INT64)
    if node.op != SLICE:
        return True
    if not attribute(node, "new_axis_mask").i:
        return False
    stored = node.attr[SHAPES].list.shape if SHAPES in node.attr else ()
    return not stored or stored[0].unknown_rank or sum(axis.size < 0 for axis in stored[0].dim) > 1


def _separate_new_axes(graph: Graph, node: Node) -> None:
    """Let a slice add no axes, and ``ExpandDims`` after it add them; a slice of everything is left out."""
    source, shape, specs = node.inputs[0], graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    mask = {name: attr(node, f"{name}_mask", 0) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if not mask["new_axis"] or not specs or specs[0] is None or (mask["ellipsis"] and shape is None):
        return
    places: list[int] = []  # of the new axes, in the output
    remaining = []  # the other specs
    axes = 0  # of the output so far
    for place in range(specs[0]):
        bit = 1 << place
        if mask["ellipsis"] & bit:
            remaining.append(place)
            others = specs[0] - 1 - (mask["new_axis"] & ~bit).bit_count()
            axes += len(shape or ()) - others
        elif mask["new_axis"] & bit:
            places.append(axes)
            axes += 1
        else:
            remaining.append(place)
            axes += not mask["shrink_axis"] & bit
    make = Maker(graph, node, [])
    if not _is_whole(graph, node, remaining, mask):
        specs_left = [_take(make, name, spec, remaining) for name, spec in zip(SPECS, node.inputs[1:], strict=True)]
        masks = {f"{name}_mask": _take_bits(bits, remaining) for name, bits in mask.items()}
        source = make.node(SLICE, source, *specs_left, like=node, role="slice", **masks)
    for place in places:
        source = make.node("ExpandDims", source, make.integers("axis", place), like=node, role="expanded", Tdim=INT32)
    _return(graph, node, source)


def _is_whole(graph: Graph, node: Node, remaining: Sequence[int], mask: dict[str, int]) -> bool:
    """Return True if a slice takes all values, in their order."""
    if not graph.is_constant(node.inputs[3]):
        return False
    strides = graph.array(node.inputs[3])
    both = mask["begin"] & mask["end"] & ~mask["shrink_axis"]
    return all(mask["ellipsis"] >> place & 1 or (both >> place & 1 and strides[place] == 1) for place in remaining)


def _take_bits(bits: int, places: Sequence[int]) -> int:
    return sum((bits >> place & 1) << new for new, place in enumerate(places))


def _take(make: Maker, name: str, spec: Tensor, places: Sequence[int]) -> Tensor:
    """Return a tensor with the elements of a vector at these places."""
    if make.graph.is_constant(spec):
        return make.constant(name, make.graph.array(spec)[list(places)])
    kinds = {"Tparams": attr(make.root, "Index"), "Tindices": INT32, "Taxis": INT32}
    inputs = spec, make.integers("places", places), make.integers("axis", 0)
    return make.node("GatherV2", *inputs, like=make.root, role=name, **kinds)


def _concatenate_parts(graph: Graph, node: Node) -> None:
    """Write ``roll(x, s)`` as ``concat(x[-s:], x[:-s])`` for one axis after the other."""
    source, shape = node.inputs[0], graph.shape(node.inputs[0])
    if shape is None or not all(map(graph.is_constant, node.inputs[1:])):
        return
    shifts, axes = (graph.array(tensor).ravel().tolist() for tensor in node.inputs[1:])
    sizes = [shape[axis] for axis in axes]
    if None in sizes:
        return
    make = Maker(graph, node, [])
    for axis, shift, size in zip(axes, shifts, sizes, strict=True):
        if size and shift % size:
            before, after = _halves(make, source, len(shape), axis % len(shape), size - shift % size)
            place = make.integers("axis", axis)
            source = make.node("ConcatV2", after, before, place, like=node, role="rolled", N=2, Tidx=INT32)
    _return(graph, node, source)


def _halves(make: Maker, source: Tensor, rank: int, axis: int, place: int) -> tuple[Tensor, Tensor]:
    """Return the parts of a tensor before a place of an axis and from it on."""
    zeros, ones = make.integers("part", [0] * rank), make.integers("part", [1] * rank)
    limits = make.integers("part", [place if one == axis else 0 for one in range(rank)])
    whole = (1 << rank) - 1
    other = whole - (1 << axis)
    half = partial(make.node, SLICE, source, like=make.root, role="half", Index=INT32)
    before = half(zeros, limits, ones, begin_mask=whole, end_mask=other)
    return before, half(limits, zeros, ones, begin_mask=other, end_mask=whole)


def _compare_integers(graph: Graph, node: Node) -> None:
    """Write ``|x|`` as ``max(x, -x)``, and ``sign(x)`` as ``min(max(x, -1), 1)``, which it is for integers."""
    (source,) = node.inputs
    if attr(node, "T") != INT64:
        return
    make = Maker(graph, node, [])
    if node.op == ABS:
        result = make.node("Maximum", source, make.node("Neg", source, like=node), like=node)
    else:
        least = make.node("Maximum", source, make.typed("least", -1, node), like=node)
        result = make.node("Minimum", least, make.typed("most", 1, node), like=node)
    _return(graph, node, result)


def _return(graph: Graph, node: Node, result: Tensor) -> None:
    """Let a node return another tensor of its type, under its name."""
    graph.replace(node, op="Identity", inputs=[result], attr=attributes("Identity", node.attr, {}))
