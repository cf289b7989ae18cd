"""Split an affine operation after a concatenation over its parts, so that it can be folded into their kernels.

    scale concat(x * K, y * L) + bias = concat(scale_1 (x * K) + bias_1, scale_2 (y * L) + bias_2)

    before    x -> Conv2D(K), y -> Conv2D(L) -> ConcatV2 -> FusedBatchNormV3 -> z
    after     x -> Conv2D(K) -> Mul, AddV2; y -> Conv2D(L) -> Mul, AddV2 -> ConcatV2 -> z

The folds then apply. Each element has the same factor and summand as before.

Requires: a constant kernel before every part; static sizes of the parts along the axis; no other reader of the
concatenation, and no control flow of version 1.
"""

from typing import Any

import numpy as np

from tfopt.graph.law import Maker, Match, WholeGraphLaw
from tfopt.graph.matching.affine_ops import (
    ELEMENTWISE,
    FUSED,
    Affine,
    add_affine_nodes,
    affine_patterns,
    overflows,
    read_affine,
)
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.layout_ops import kernel_behind
from tfopt.graph.matching.pattern import bindings
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.report import Report

NAME = "push_before_concat"
PATTERNS = affine_patterns("x")


def run(graph: Graph, report: Report) -> int:
    """Split every such operation."""
    fired = 0
    for node in graph.of_op(*ELEMENTWISE, *FUSED) if graph.of_op("ConcatV2") and not is_framed(graph) else ():
        for match in _matches(graph, node):
            parts = _parts(match)
            if isinstance(parts, str):
                report.refuse(NAME, node.name, parts)
                continue
            _replace(match, parts)
            report.fire(NAME, node.name)
            fired += 1
            break
    return fired


def _matches(graph: Graph, node: Node) -> list[Match]:
    """Return the matches of an operation with constants after a ConcatV2."""
    matches = (Match(graph, binding) for pattern in PATTERNS for binding in bindings(pattern, graph, Tensor(node.name)))
    return [
        match
        for match in matches
        if graph.nodes[match.tensor("x").node].op == "ConcatV2"
        and all(graph.is_constant(match.tensor(role)) for role in match.binding.constants)
    ]


def _parts(match: Match) -> list[Affine] | str:
    """Return the affine function of each part, or why the operation cannot be split."""
    graph, concat, node = match.graph, match.graph.nodes[match.tensor("x").node], match.node()
    if {concat.name, node.name} & graph.fed or concat.name in graph.fetched or concat.controls or node.controls:
        return "the ConcatV2 is an output of the graph as well, fed, or has control edges"
    if graph.uses(concat.name) != 1 or graph.waiting(concat.name) or graph.waiting(node.name):
        return f"the ConcatV2 has {graph.uses(concat.name)} consumers, or a node waits for it"
    if any(
        tensor.node == node.name and tensor.output for reader in graph.readers(node.name) for tensor in reader.inputs
    ):
        return "other results of the batch norm are read"
    if node.op in FUSED and node.name in graph.fetched:
        return "the batch norm is an output of the graph, and gives several"
    affine, shape = read_affine(match, "root", Tensor(concat.name)), graph.shape(Tensor(concat.name))
    if isinstance(affine, str):
        return affine
    if shape is None or not graph.is_constant(concat.inputs[-1]):
        return "the axis is not known"
    axis = int(graph.array(concat.inputs[-1])) % len(shape)
    sizes = [(graph.shape(tensor) or {axis: None})[axis] for tensor in concat.inputs[:-1]]
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
    return parts


def _split(constant: Any, ends: Any, axis: int) -> list[Any]:
    return [constant] * (len(ends) + 1) if constant.shape[axis] == 1 else np.split(constant, ends, axis)


def _replace(match: Match, parts: list[Affine]) -> None:
    graph, node = match.graph, match.node()
    concat = graph.nodes[match.tensor("x").node]
    controls = [name for role in match.binding.constants for name in graph.nodes[match.tensor(role).node].controls]
    make = Maker(graph, node, list(dict.fromkeys(controls)))
    moved = [add_affine_nodes(make, part, tensor, node) for part, tensor in zip(parts, concat.inputs[:-1], strict=True)]
    graph.remove(node.name)
    graph.remove(concat.name)
    inputs = [*moved, concat.inputs[-1]]
    graph.insert(Node(node.name, "ConcatV2", inputs, concat.controls, concat.attr, concat.device))


LAW = WholeGraphLaw(
    run,
    requires=("direct edges", "folded constants"),
    rounds=True,
    before={"fold_scale": "each part is next to its own kernel then"},
    follows="push_before_view",
)
