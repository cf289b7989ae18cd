"""Replace powers with a small constant exponent by products, roots and reciprocals, which are faster.

    x ** 2 = Square(x)    x ** 3 = x * Square(x)    x ** -1 = Reciprocal(x)    x ** 0 = OnesLike(x)
    x ** 0.5 = Sqrt(x)    x ** -0.5 = Rsqrt(x)      if x is not negative

    before    x -> Pow(2) -> y
    after     x -> Square -> y

A third power is rounded twice. NaN and infinity stay: 0 ** -1 has the sign of the zero, as 1 / 0 has, and NaN ** 0 is
1. Powers of integers are exact modulo the range of the type. x ** 1 is a case of `drop_neutral_elements`.

Requires:
    - Real numbers; integers only for 0, 2 and 3.
    - An exponent that does not make the shape larger.
    - For roots, an x whose operation has no negative result and no -0: (-infinity) ** 0.5 is infinite, its root NaN.

Source: `ConvertPow` in Grappler's arithmetic optimizer.
"""

import numpy as np

from tfopt.graph.law import Graph, LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.laws.drop_neutral_elements import enlarges
from tfopt.graph.matching.linear_ops import FLOATS

PATTERN = op("Pow", "x", const("exponent"))
UNARY = {2: "Square", -1: "Reciprocal", 0: "OnesLike", 0.5: "Sqrt", -0.5: "Rsqrt"}
POSITIVE = {"Square", "SquaredDifference", "Abs", "Exp", "Sigmoid", "Softplus"}  # none of them returns -0
PASSING = {"Mean", "Sum", "Reshape", "Squeeze", "ExpandDims"}  # positive results of positive elements


def when(match: Match) -> str | None:
    array = match.array("exponent")
    if not array.size or not bool(np.all(array == array.flat[0])):
        return "the exponents differ"
    if array.dtype.name not in FLOATS and not np.issubdtype(array.dtype, np.integer):
        return f"a power of {array.dtype.name}"
    exponent = float(array.flat[0])
    if exponent not in (3, *UNARY) or (exponent < 0 and array.dtype.name not in FLOATS):
        return "the exponent has no simpler form"
    if abs(exponent) == 0.5 and not match.graph.fast_math and not _is_positive(match.graph, match.tensor("x")):
        return "the root of a negative number is another one"
    return enlarges(array, match.shape("x"))


def rewrite(match: Match, make: Maker) -> Tensor:
    exponent, like = float(match.array("exponent").flat[0]), match.node()
    if exponent in UNARY:
        return make.node(UNARY[exponent], match.tensor("x"), like=like)
    return make.node("Mul", match.tensor("x"), make.node("Square", match.tensor("x"), like=like), like=like)


def _is_positive(graph: Graph, tensor: Tensor, depth: int = 8) -> bool:
    """Return whether no element of a tensor is negative or -0, as far as a few operations show it."""
    node = graph.nodes[tensor.node]
    if graph.is_constant(tensor):
        array = graph.array(tensor)
        return array.dtype.name in FLOATS and bool((array.astype(np.float64) > 0).all())
    if node.op in POSITIVE or depth == 0:
        return node.op in POSITIVE
    if node.op in PASSING:
        return _is_positive(graph, node.inputs[0], depth - 1)
    sources = (_is_positive(graph, source, depth - 1) for source in node.inputs)
    return (node.op in ("Add", "AddV2", "Mul") and all(sources)) or (node.op == "Maximum" and any(sources))


LAW = LocalLaw((PATTERN,), when, rewrite, rounds=True, after={"fuse_gelus": "the cube of a GELU is part of its form"})
