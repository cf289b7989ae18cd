"""Compute products of one tensor with several matrices as one product.

    x K_1 + b_1, x K_2 + b_2, … = split(x [K_1 | K_2 | …] + [b_1 | b_2 | …])

    before    x -> MatMul(K_1) -> BiasAdd(b_1) -> Reshape;  x -> MatMul(K_2) -> BiasAdd(b_2) -> Reshape;  …
    after     x -> MatMul([K_1 | K_2 | …]) -> BiasAdd -> SplitV -> Reshape, Reshape, …

The projections of queries, keys and values in attention have this form. Every sum has the same terms, in an order that
the kernel chooses. The parts are copied, which took as long as the larger product saved where it was measured
(docs/benchmarks.md), so this law runs only if it is requested by name.

Requires: constant kernels and biases of floats; only Reshapes read the results: an activation would be computed in the
kernel of its own product; no control edges.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tfopt.graph.law import INT32, Graph, Maker, Node, Outcome, Tensor, WholeGraphLaw, attr
from tfopt.graph.matching.control_flow_v1 import is_framed
from tfopt.graph.matching.linear_ops import FLOATS


class Branch(NamedTuple):
    """A product with its bias: the last node is the BiasAdd, or the product without one."""

    product: Node
    last: Node


def run(graph: Graph) -> Iterator[Outcome]:
    if is_framed(graph):
        return
    by_input: dict[tuple[object, ...], list[Node]] = {}
    for product in graph.of_op("MatMul"):
        key = (product.inputs[0], attr(product, "transpose_a"), attr(product, "transpose_b"), attr(product, "T"))
        by_input.setdefault((*key, product.device), []).append(product)
    for products in by_input.values():
        if len(products) < 2:
            continue
        groups: dict[bool, list[Branch]] = {}
        for product in products:
            branch = _branch(graph, product)
            if isinstance(branch, str):
                yield product.name, branch
            else:
                groups.setdefault(branch.last is product, []).append(branch)
        for branches in groups.values():
            if len(branches) > 1:
                _replace(graph, branches)
                yield branches[0].product.name, None


def _branch(graph: Graph, product: Node) -> Branch | str:
    last = product
    readers = graph.readers(product.name)
    if len(readers) == 1 and readers[0].op == "BiasAdd" and graph.uses(product.name) == 1:
        last = readers[0]
    if graph.is_held(product) or graph.is_held(last):
        return "it is an output of the graph as well, fed, or has control edges"
    constants = [product.inputs[1], *([] if last is product else [last.inputs[1]])]
    if not all(graph.is_constant(tensor) and not graph.nodes[tensor.node].controls for tensor in constants):
        return "the kernel or the bias is not a constant"
    if any(graph.array(tensor).dtype.name not in FLOATS for tensor in constants):
        return "the kernel is not of floats"
    if any(reader.op != "Reshape" for reader in graph.readers(last.name)):
        return "something else than a Reshape reads it"
    return Branch(product, last)


def _replace(graph: Graph, branches: list[Branch]) -> None:
    first, last = branches[0]
    make = Maker(graph, first, [])
    axis = 0 if attr(first, "transpose_b") else 1
    kernels = [graph.array(branch.product.inputs[1]) for branch in branches]
    kernel = make.constant("kernels", np.concatenate(kernels, axis))
    result = make.node("MatMul", first.inputs[0], kernel, like=first)
    if last is not first:
        biases = make.constant("biases", np.concatenate([graph.array(branch.last.inputs[1]) for branch in branches]))
        result = make.node("BiasAdd", result, biases, like=last)
    sizes = make.integers("widths", [each.shape[axis] for each in kernels]), make.integers("axis", 1)
    parts = make.node("SplitV", result, *sizes, like=first, Tlen=INT32, num_split=len(branches))
    for index, branch in enumerate(branches):
        graph.know_shape(Tensor(parts.node, index), Tensor(branch.last.name))
        graph.redirect(Tensor(branch.last.name), Tensor(parts.node, index))
    for branch in branches:
        for name in dict.fromkeys((branch.last.name, branch.product.name)):
            graph.remove(name)


LAW = WholeGraphLaw(
    run,
    rounds=True,
    opt_in="one large product is not always faster than several, and copies of its parts",
    follows="fuse_products_of_batch",
)
