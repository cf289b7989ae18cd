"""Join constants anywhere in a tree of sums, or of products, at its end.

    (x + c) + (y + d) = (x + y) + (c + d)        ((x + c) - y) + d = (x - y) + (c + d)
    (c - x) - (y + d) = (c - d) - (x + y)        bias((x + c) + y, d) = (x + y) + (c + d)
    (x * c) * (y * d) = (x * y) * (c d)          ((x * c) / y) * d = (x / y) * (c d)

    before    x -> AddV2(c) -> AddV2(y) -> BiasAdd(d) -> z
    after     x -> AddV2(y) -> AddV2(c + d) -> z

It holds for real numbers: sums and products of x and y are rounded at other places, and next to the largest floats one
form may overflow where the other does not. Integers are exact modulo the range of their type.

Requires:
    - Two constants or more, and two other operands or more. One of the constants is at an operation with the static
      shape of the result, so that no larger operation is added.
    - No constant is the bias or scale of a kernel: a bias is fused with the kernel, and costs nothing.
    - Nothing else reads what is computed in between.
    - The shape of all constants, broadcast, is not larger than the largest constant.
    - The joined constant is finite, and float summands do not cancel: (x + 1e8) + (y - 1e8) differs from x + y by
      rounding. Factors of floats are between one millionth and a million, and no integers are divided.

Source: `ConstantPushDown` in Grappler's constant folding, and its `AddOpsRewrite`.
"""

import functools
from dataclasses import dataclass

import numpy as np

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor, attr
from tfopt.graph.matching.joined_constants import (
    INVERSES,
    PRODUCTS,
    SUMS,
    Constant,
    factor_refusal,
    is_integer,
    range_refusal,
    refusal,
    summand_refusal,
    widened,
)
from tfopt.graph.matching.linear_ops import PLAIN, TRANSPOSED

FAMILIES = ((*SUMS, "BiasAdd"), PRODUCTS)


@dataclass(frozen=True)
class Tree:
    """A tree of sums or products."""

    nodes: list[Node]  # its operations, the root first, each before those whose results it reads
    joined: Constant  # the constant of all of them
    like: Constant  # one of the constants


def find(graph: Graph, root: Node) -> Tree | str | None:
    """Return the tree that ends at a node, if it has several constants and other operands."""
    family = next(ops for ops in FAMILIES if root.op in ops)
    if not _is_open(graph, root) or _is_inner(graph, root, family):
        return None
    nodes, inverse = [root], {root.name: False}
    constants: list[tuple[Constant, bool]] = []
    owners: list[Node] = []
    others = 0
    for node in nodes:
        for place, tensor in enumerate(node.inputs):
            source, turned = graph.nodes[tensor.node], inverse[node.name] != (place == 1 and node.op in INVERSES)
            if graph.is_constant(tensor):
                constants.append((graph.array(tensor), turned))
                owners.append(node)
            elif source.op in family and _is_open(graph, source) and _is_inner(graph, source, family):
                nodes.append(source)
                inverse[source.name] = turned
            else:
                others += 1
    if len(constants) < 2 or others < 2:
        return None
    shape = graph.shape(Tensor(root.name))
    if all(node is not root and (shape is None or graph.shape(Tensor(node.name)) != shape) for node in owners):
        return "no constant is at an operation that is known to have the shape of the result"
    joined = _join(constants, family)
    return joined if isinstance(joined, str) else Tree(nodes, joined, constants[0][0])


def rewrite(tree: Tree, make: Maker) -> list[Tensor]:
    root = tree.nodes[0]
    terms: dict[str, tuple[Tensor, bool]] = {}  # by operation: what remains of it, and whether it is negated
    for node in reversed(tree.nodes):
        parts = [terms.get(tensor.node, (tensor, False)) for tensor in node.inputs]
        if node.op == "Sub":
            parts[1] = (parts[1][0], not parts[1][1])
        rest = [part for part in parts if not make.graph.is_constant(part[0])]
        terms[node.name] = rest[0] if len(rest) == 1 else _combined(rest, make, node)
        if len(rest) > 1 and any(make.graph.shape(tensor) == make.graph.shape(Tensor(node.name)) for tensor, _ in rest):
            make.graph.know_shape(terms[node.name][0], Tensor(node.name))
    total, is_negative = terms[root.name]
    constant = make.constant("constant", tree.joined, tree.like)
    if is_negative:
        return [make.node("Sub", constant, total, like=root)]
    return [make.node("Mul" if root.op in PRODUCTS else "AddV2", total, constant, like=root)]


def _combined(parts: list[tuple[Tensor, bool]], make: Maker, like: Node) -> tuple[Tensor, bool]:
    (one, is_one_negative), (other, is_other_negative) = parts
    if like.op in PRODUCTS:
        return make.node(like.op, one, other, like=like), False
    if is_one_negative == is_other_negative:
        return make.node("AddV2", one, other, like=like), is_one_negative
    return make.node("Sub", *((other, one) if is_one_negative else (one, other)), like=like), False


def _is_open(graph: Graph, node: Node) -> bool:
    constants = [graph.is_constant(tensor) for tensor in node.inputs]
    if node.op == "BiasAdd" and (not constants[1] or attr(node, "data_format") == "NCHW"):
        return False
    if node.op == "RealDiv" and constants[0]:
        return False
    sources = [graph.nodes[tensor.node].op for tensor in node.inputs]
    return not (any(constants) and any(op in (*PLAIN, *TRANSPOSED) for op in sources))


def _is_inner(graph: Graph, node: Node, family: tuple[str, ...]) -> bool:
    """Return whether only one operation of the same kind reads a node, as a part of its tree."""
    readers = graph.readers(node.name)
    is_read_once = len(readers) == 1 and graph.uses(node.name) == 1 and not graph.is_held(node)
    return is_read_once and readers[0].op in family and _is_open(graph, readers[0])


def _join(constants: list[tuple[Constant, bool]], family: tuple[str, ...]) -> Constant | str:
    """Return the sum or product of constants, some of them negated or reciprocal; or why they are not joined."""
    arrays, is_product = [array for array, _ in constants], family is PRODUCTS
    if reason := refusal(arrays, divided=is_product and any(turned for _, turned in constants)):
        return reason
    with np.errstate(all="ignore"):
        turn, combine = (np.reciprocal, np.multiply) if is_product else (np.negative, np.add)
        terms = [turn(widened(array)) if turned else widened(array) for array, turned in constants]
        joined = np.asarray(functools.reduce(combine, terms))
    if is_integer(joined):
        return joined
    dtype = arrays[0].dtype
    if is_product:
        return factor_refusal(*terms, joined) or range_refusal(joined, dtype) or joined
    return summand_refusal(terms, joined, dtype) or joined


LAW = SearchLaw(
    (*SUMS, "BiasAdd", *PRODUCTS),
    find,
    rewrite,
    rounds=True,
    after={
        "push_constants_together": "each operand has a single constant then",
        "push_constants_through_inverses": "each operand has a single constant then",
    },
)
