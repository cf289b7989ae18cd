"""Compute rows between two matrices as a matrix: Reshapes around operations on rows cancel.

    Reshape(f(Reshape(x, [b, t, n])), [-1, n]) = f(x)        for x [b t, n]

    before    MatMul -> BiasAdd -> Reshape(-1, t, n) -> Relu -> Reshape(-1, n) -> MatMul -> y
    after     MatMul -> BiasAdd -> Relu -> MatMul -> y

f consists of elementwise operations, with constants along the last axis, and of reductions along the last axis: of
activations, residual sums and layer normalizations. None depends on the other axes, so every value stays the same. A
tensor that f reads, or that is read, in another shape is reshaped there. TensorFlow can then compute bias, activation
and residual sum in the kernel of the product.

Requires: equal axes but for the last one, of all tensors in f (`symbolic_shapes`); at most one of them open, and none
0; not more new Reshapes than old ones that cancel.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tfopt.graph.law import Graph, Maker, Node, Outcome, Tensor, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.symbolic_shapes import ONE, Sizes, SymbolicShapes, product
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY, output_types

ALONG_ROWS = {"BiasAdd", "LogSoftmax", "Softmax"}


@dataclass
class Region:
    """Connected operations on rows, and the Reshapes around them."""

    lead: Sizes  # the sizes of all axes but the last one
    names: dict[str, None] = field(default_factory=dict)  # names of the operations
    # matrices by the tensor that a Reshape makes of each, which the operations read
    matrices: dict[Tensor, Tensor] = field(default_factory=dict)
    # tensors that are reshaped for the operations, or for their readers
    reshaped: dict[Tensor, None] = field(default_factory=dict)
    # names of Reshapes that make or read a matrix and are not needed any more
    cancelled: dict[str, None] = field(default_factory=dict)


def run(graph: Graph) -> Iterator[Outcome]:
    reshapes = [node for node in graph.of_op("Reshape") if any(_is_row_op(graph, each) for each in _near(graph, node))]
    if not reshapes or is_framed(graph):
        return
    shapes, seen = SymbolicShapes(graph), set[str]()
    for node in reshapes:
        lead = _lead(shapes, node)
        for start in _near(graph, node) if lead and node.name in graph.nodes else ():
            if start.name in seen or not _is_inside(graph, shapes, start, lead or ()):
                continue
            region = _region(graph, shapes, start, lead or ())
            seen |= set(region.names)
            reason = _refusal(region)
            if not reason:
                _flatten(graph, shapes, region)
            yield start.name, reason


def _near(graph: Graph, reshape: Node) -> list[Node]:
    return [graph.nodes[reshape.inputs[0].node], *graph.readers(reshape.name)]


def _is_row_op(graph: Graph, node: Node) -> bool:
    """Return whether an operation may be part of a region, whatever its shape."""
    if node.op not in UNARY | BINARY | ALONG_ROWS and not (node.op in REDUCTIONS and attr(node, "keep_dims")):
        return False
    return not graph.is_held(node) and not (node.op == "BiasAdd" and attr(node, "data_format") == "NCHW")


def _lead(shapes: SymbolicShapes, reshape: Node) -> Sizes | None:
    """Return all sizes but the last one of what a Reshape makes of a matrix, or makes a matrix of; None for others."""
    before, after = shapes.shape(reshape.inputs[0]), shapes.shape(Tensor(reshape.name))
    if before is None or after is None or {len(before) == 2, len(after) == 2} != {True, False}:
        return None
    many, matrix = (after, before) if len(before) == 2 else (before, after)
    return many[:-1] if len(many) > 2 and (product(many[:-1]), many[-1]) == matrix else None


def _is_inside(graph: Graph, shapes: SymbolicShapes, node: Node, lead: Sizes) -> bool:
    """Return whether an operation works on rows of tensors with these sizes."""
    if not _is_row_op(graph, node) or not _has_lead(shapes, Tensor(node.name), lead):
        return False
    if node.op in REDUCTIONS:
        constant = graph.is_constant(node.inputs[1])
        last = constant and list(graph.array(node.inputs[1]).ravel() % (len(lead) + 1)) == [len(lead)]
        return last and _has_lead(shapes, node.inputs[0], lead)
    return all(_is_row_operand(graph, shapes, tensor, lead) for tensor in node.inputs)


def _is_row_operand(graph: Graph, shapes: SymbolicShapes, tensor: Tensor, lead: Sizes) -> bool:
    if not graph.is_constant(tensor):
        return _has_lead(shapes, tensor, lead)
    shape = shapes.shape(tensor)
    return shape is not None and len(shape) <= len(lead) + 1 and all(size == ONE for size in shape[:-1])


def _has_lead(shapes: SymbolicShapes, tensor: Tensor, lead: Sizes) -> bool:
    shape = shapes.shape(tensor)
    return shape is not None and shape[:-1] == lead and not shape[-1].open


def _region(graph: Graph, shapes: SymbolicShapes, start: Node, lead: Sizes) -> Region:
    region, ahead = Region(lead, {start.name: None}), [start]
    while ahead:
        node = ahead.pop()
        for near in [*(graph.nodes[tensor.node] for tensor in node.inputs), *graph.readers(node.name)]:
            if near.name not in region.names and _is_inside(graph, shapes, near, lead):
                region.names[near.name] = None
                ahead.append(near)
    for name in region.names:
        for tensor in graph.nodes[name].inputs:
            if tensor.node not in region.names and not graph.is_constant(tensor):
                _read(graph, shapes, region, tensor)
        for reader in graph.readers(name):
            if reader.name in region.names:
                continue
            if reader.op != "Reshape" or reader.inputs[0] != Tensor(name):
                region.reshaped[Tensor(name)] = None
            elif _lead(shapes, reader) == lead:
                region.cancelled[reader.name] = None
    return region


def _read(graph: Graph, shapes: SymbolicShapes, region: Region, tensor: Tensor) -> None:
    """Note how the operations read a tensor from outside: the matrix that it was, or reshaped."""
    node = graph.nodes[tensor.node]
    if node.op != "Reshape" or _lead(shapes, node) != region.lead or node.name in graph.fed:
        region.reshaped[tensor] = None
        return
    region.matrices[tensor] = node.inputs[0]
    if all(reader.name in region.names for reader in graph.readers(node.name)):
        region.cancelled[node.name] = None


def _refusal(region: Region) -> str | None:
    if sum(bool(size.open) for size in region.lead) > 1 or any(size.factor == 0 for size in region.lead):
        return "several sizes are open, or one is 0"
    if len(region.reshaped) > len(region.cancelled):
        return f"{len(region.cancelled)} Reshapes would cancel, and {len(region.reshaped)} be new"
    return None if region.cancelled else "no Reshape would cancel"


def _flatten(graph: Graph, shapes: SymbolicShapes, region: Region) -> None:
    outer = [tensor for tensor in region.reshaped if tensor.node in region.names]
    inputs = dict(region.matrices)
    for tensor in region.reshaped:
        if tensor.node not in region.names:
            (*_, width) = shapes.shape(tensor) or ()
            root = next(reader for reader in graph.readers(tensor.node) if reader.name in region.names)
            inputs[tensor] = _reshape(graph, root, tensor, (None, width.factor))
    for name in region.names:
        node = graph.nodes[name]
        operands = [_operand(graph, region, node, inputs.get(tensor, tensor)) for tensor in node.inputs]
        graph.replace(node, inputs=operands)
    for tensor in outer:
        readers = [reader for reader in graph.readers(tensor.node) if reader.name not in region.names]
        sizes = [None if size.open else size.factor for size in shapes.shape(tensor) or ()]
        again = _reshape(graph, graph.nodes[tensor.node], tensor, sizes)
        for reader in readers:
            if reader.op != "Reshape" or reader.inputs[0] != tensor:
                graph.replace(reader, inputs=[again if each == tensor else each for each in reader.inputs])
    for name in region.cancelled:
        _cancel(graph, region, graph.nodes[name])


def _cancel(graph: Graph, region: Region, reshape: Node) -> None:
    """Remove a Reshape that nothing reads, or one of a matrix to a matrix."""
    if reshape.name in graph.fetched or reshape.controls or graph.waiting(reshape.name):
        return
    if reshape.inputs[0].node in region.names:
        graph.redirect(Tensor(reshape.name), reshape.inputs[0])
    graph.remove(reshape.name)


def _operand(graph: Graph, region: Region, node: Node, tensor: Tensor) -> Tensor:
    """Return an input of an operation as it is for matrices: constants get their place along the last axis."""
    if not graph.is_constant(tensor):
        return tensor
    array = graph.array(tensor)
    if node.op in REDUCTIONS:
        return Maker(graph, node, []).constant("axis", np.full_like(array, 1))
    if array.ndim < 2:
        return tensor
    return Maker(graph, node, []).constant("row", array.reshape(array.shape[-1:]))


def _reshape(graph: Graph, root: Node, tensor: Tensor, sizes: Iterable[int | None]) -> Tensor:
    kind = output_types(graph.nodes[tensor.node])[tensor.output]
    return Maker(graph, root, []).reshape(tensor, sizes, root, T=kind)


LAW = WholeGraphLaw(
    run, changes_shapes=True, after={"fold_shift": "the folds match constants of the shape that a layer has"}
)
