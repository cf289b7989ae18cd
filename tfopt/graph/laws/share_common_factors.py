"""Multiply a sum once instead of each summand.

    x y + x z = x (y + z)        x c + x d = x (c + d)        x y - x z = x (y - z)

    before    x, y -> Mul;  x, z -> Mul;  both -> AddV2 -> w
    after     y, z -> AddV2;  x, it -> Mul -> w

Integers are exact modulo the range of their type. For floats it is applied to constants c and d of the same sign: x c
is then infinite only if x (c + d) is, but for rounding. Other floats may differ: with an infinite x, y = 2 and z = -1,
the sum is NaN, and the product infinite. ``fast_math`` applies it to them, too.

Requires: products that nothing else reads.

Source: `HoistCommonFactorOutOfAggregation` in Grappler's arithmetic optimizer.
"""

import numpy as np

from tfopt.graph.law import Maker, Match, Tensor, computed_law, op
from tfopt.graph.matching.joined_constants import range_refusal

SUMS = ("AddV2", "Add", "Sub")
Factors = tuple[Tensor, Tensor, Tensor]  # a common factor of both products that is no constant, and the others
PATTERN = op(SUMS, op("Mul", "a", "b", role="left"), op("Mul", "c", "d", role="right"))


def compute(match: Match) -> Factors | str:
    factors = _factors(match)
    if factors is None:
        return "the products have no common factor"
    _, one, other = factors
    if match.dtype().lstrip("u").startswith("int") or match.graph.fast_math:
        return factors
    if not all(map(match.graph.is_constant, (one, other))):
        return "floats may differ where a product is infinite"
    first, second = (match.graph.array(tensor) for tensor in (one, other))
    if first.dtype.kind == "c":
        return "complex numbers have no sign"
    signs = [np.sign(array.astype(np.float64)) for array in (first, second)]
    signs[1] = -signs[1] if match.node().op == "Sub" else signs[1]
    try:
        same = bool((signs[0] * signs[1] > 0).all())
    except ValueError:
        return "the shapes of the constants cannot be broadcast"
    total = first.astype(np.float64) + second.astype(np.float64) * (-1 if match.node().op == "Sub" else 1)
    if reason := range_refusal(total, first.dtype):
        return reason
    return factors if same else "floats may differ where a product is infinite"


def build(match: Match, make: Maker, factors: Factors) -> Tensor:
    common, one, other = factors
    total = make.node(match.node().op, one, other, like=match.node(), role="total")
    return make.node("Mul", common, total, like=match.node())


def _factors(match: Match) -> Factors | None:
    left, right = ([match.tensor(role) for role in roles] for roles in ("ab", "cd"))
    for index, common in enumerate(left):
        if common in right and not match.graph.is_constant(common):
            return common, left[1 - index], right[1 - right.index(common)]
    return None


LAW = computed_law(
    (PATTERN,),
    compute,
    build,
    rounds=True,
    after={"fold_shift": "a factor next to a kernel goes into the kernel"},
    follows="push_constants_together",
)
