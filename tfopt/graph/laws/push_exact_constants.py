"""Join constants of equal operations one after another that are associative without rounding.

    max(max(x, c), d) = max(x, max(c, d))        (x and c) and d = x and (c and d)

    before    x -> Maximum(c) -> Maximum(d) -> y
    after     x -> Maximum(max(c, d)) -> y

It holds for the minimum, bits and bools too; sums and products are in `push_constants_together`. NaN and infinity stay,
because x has the same position as before.

Requires: constants of a joined shape that is not larger than the larger one; no NaN and no zeros of both signs among
them; for floats x on the same side of both operations, because a maximum may return either side if x is NaN.

Source: `ConstantPushDown` in Grappler's constant folding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.joined_constants import growth_refusal

JOIN: dict[str, Any] = {"Maximum": np.maximum, "Minimum": np.minimum}
JOIN |= {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or}
JOIN |= {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
PATTERNS = tuple(op(name, op(name, "x", const("first"), role="inner"), const("second")) for name in JOIN)


def when(match: Match) -> str | None:
    first, second = match.array("first"), match.array("second")
    if reason := growth_refusal(first, second):
        return reason
    if first.dtype.kind in "iub":
        return None
    data_first = match.node("inner").inputs[0] == match.tensor("x")
    if data_first != (match.node().inputs[0].node == match.node("inner").name):
        return "the data are on different sides"
    one, other = first.astype(np.float64), second.astype(np.float64)
    zeros = (one == 0) & (other == 0) & (np.signbit(one) != np.signbit(other))
    return "a constant is NaN, or zeros differ in sign" if np.isnan(one + other).any() or zeros.any() else None


def rewrite(match: Match, make: Maker) -> Tensor:
    joined: NDArray[np.generic] = JOIN[match.node().op](match.array("first"), match.array("second"))
    tensors = [match.tensor("x"), make.constant("constant", joined, match.array("first"))]
    data_first = match.node("inner").inputs[0] == match.tensor("x")
    return make.node(match.node().op, *(tensors if data_first else tensors[::-1]), like=match.node())


LAW = LocalLaw(PATTERNS, when, rewrite, follows="push_constants_over_trees")
