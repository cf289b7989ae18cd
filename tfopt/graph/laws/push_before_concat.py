"""Split an affine operation after a concatenation over its parts, so that it can be folded into their kernels.

    scale concat(x * K, y * L) + bias = concat(scale_1 (x * K) + bias_1, scale_2 (y * L) + bias_2)

    before    x -> Conv2D(K), y -> Conv2D(L) -> ConcatV2 -> FusedBatchNormV3 -> z
    after     x -> Conv2D(K) -> Mul, AddV2; y -> Conv2D(L) -> Mul, AddV2 -> ConcatV2 -> z

The folds then apply. Each element has the same factor and summand as before.

Requires: a constant kernel before every part; static sizes of the parts along the axis; no other reader of the
concatenation, and no control flow of version 1.
"""

from typing import Any, NamedTuple

import numpy as np

from tfopt.graph.law import Graph, Maker, Match, Node, SearchLaw, Tensor, matches
from tfopt.graph.matching.affine_ops import (
    ELEMENTWISE,
    FUSED,
    Affine,
    add_affine_nodes,
    affine_patterns,
    overflows,
    read_affine,
)
from tfopt.graph.matching.layout_ops import kernel_behind
from tfopt.graph.matching.parts import size_along

PATTERNS = affine_patterns("x")


class Split(NamedTuple):
    """An affine operation after a concatenation, and the affine function of each part."""

    match: Match
    concat: Node
    parts: list[Affine]


def find(graph: Graph, node: Node) -> Split | str | None:
    for match in matches(graph, node, PATTERNS):
        concat = graph.nodes[match.tensor("x").node]
        if concat.op == "ConcatV2":
            return _refusal(match, concat) or _parts(match, concat)
    return None


def rewrite(split: Split, make: Maker) -> list[Tensor]:
    match, concat, parts = split
    constants = [make.graph.nodes[match.tensor(role).node] for role in match.binding.constants]
    make.controls += dict.fromkeys(name for node in constants for name in node.controls)
    data = concat.inputs[:-1]
    moved = [add_affine_nodes(make, part, tensor, make.root) for part, tensor in zip(parts, data, strict=True)]
    return [make.node("ConcatV2", *moved, concat.inputs[-1], like=concat)]


def _refusal(match: Match, concat: Node) -> str | None:
    graph, node = match.graph, match.node()
    if {concat.name, node.name} & graph.fed or concat.name in graph.fetched or concat.controls or node.controls:
        return "the ConcatV2 is an output of the graph as well, fed, or has control edges"
    if graph.uses(concat.name) != 1 or graph.waiting(concat.name) or graph.waiting(node.name):
        return f"the ConcatV2 has {graph.uses(concat.name)} consumers, or a node waits for it"
    read = [tensor for reader in graph.readers(node.name) for tensor in reader.inputs if tensor.node == node.name]
    if any(tensor.output for tensor in read):
        return "other results of the batch norm are read"
    if node.op in FUSED and node.name in graph.fetched:
        return "the batch norm is an output of the graph, and gives several"
    return None


def _parts(match: Match, concat: Node) -> Split | str:
    graph = match.graph
    affine, shape = read_affine(match, "root", Tensor(concat.name)), graph.shape(Tensor(concat.name))
    if isinstance(affine, str):
        return affine
    if shape is None or not graph.is_constant(concat.inputs[-1]):
        return "the axis is not known"
    axis = int(graph.array(concat.inputs[-1])) % len(shape)
    sizes = [size_along(graph, tensor, axis) for tensor in concat.inputs[:-1]]
    if None in sizes:
        return "the size of a part is not known"
    ends = np.cumsum([size or 0 for size in sizes])[:-1]
    split = [[None] * len(sizes) if each is None else _split(each, ends, axis) for each in affine]
    parts = [Affine(*each) for each in zip(*split, strict=True)]
    for tensor, part in zip(concat.inputs[:-1], parts, strict=True):
        kernel = kernel_behind(graph, tensor)
        if isinstance(kernel, str):
            return kernel
        if overflows(part, kernel):
            return "the weights may not be finite"
    return Split(match, concat, parts)


def _split(constant: Any, ends: Any, axis: int) -> list[Any]:
    return [constant] * (len(ends) + 1) if constant.shape[axis] == 1 else np.split(constant, ends, axis)


LAW = SearchLaw(
    (*ELEMENTWISE, *FUSED),
    find,
    rewrite,
    rounds=True,
    before={"fold_scale": "each part is next to its own kernel then"},
    follows="push_before_view",
)
