"""Join constants where the data are subtracted, or are the divisor, in one of two operations.

    (c - x) + d = (c + d) - x        d - (x + c) = (d - c) - x        d - (c - x) = x + (d - c)
    (c / x) * d = (c d) / x          d / (x * c) = (d / c) / x        d / (c / x) = x * (d / c)

    before    x -> Sub(c - x) -> AddV2(d) -> y
    after     x -> Sub((c + d) - x) -> y

`push_constants_together` joins the others. The float result is rounded once instead of twice. Integer sums are exact
modulo the range of the type.

Requires:
    - The shape of both constants, broadcast, is not larger than the larger constant.
    - The joined constant is finite, and float summands do not cancel: 1e8 - (x + 1e8) differs from -x by rounding.
    - Factors of floats between one millionth and a million: others may overflow in one form only. No integers are
      divided.

Source: `ConstantPushDown` in Grappler's constant folding.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.joined_constants import cancellation_refusal, growth_refusal, range_refusal
from tfopt.graph.matching.linear_ops import FLOATS
from tfopt.graph.matching.pattern import Op, const, op
from tfopt.graph.mutable_graph import Tensor

SUMS, PRODUCTS = ("AddV2", "Add", "Sub"), ("Mul", "RealDiv")
LEAST, MOST = 1e-6, 1e6  # factors


def _patterns() -> list[Op]:
    """Return the patterns in which one operation at least has the data as its second operand."""
    patterns = []
    for ops, inverse in ((SUMS, "Sub"), (PRODUCTS, "RealDiv")):
        of_data = op(inverse, const("first"), "x", role="inner")
        patterns.append(op(ops, of_data, const("second")))
        patterns.append(op(inverse, const("second"), of_data))
        patterns.append(op(inverse, const("second"), op(ops, "x", const("first"), role="inner")))
    return patterns


def when(match: Match) -> str | None:
    """Refuse constants whose join grows, overflows or cancels."""
    first, second = match.array("first"), match.array("second")
    integers = np.issubdtype(first.dtype, np.integer)
    if not integers and first.dtype.name not in FLOATS:
        return f"the constants are {first.dtype.name}"
    is_sum = match.node().op in SUMS
    if integers and not is_sum:
        return "integers are divided"
    if reason := growth_refusal(first, second):
        return reason
    if integers:
        return None
    _, joined = _joined(match)
    if reason := range_refusal(joined, first.dtype):
        return reason
    if is_sum:
        return cancellation_refusal(first, second, joined)
    factors = [np.abs(array.astype(np.float64)) for array in (first, second, joined)]
    if match.graph.fast_math:
        return None
    outside = any(((factor < LEAST) | (factor > MOST)).any() for factor in factors)
    return "a factor is so small or large that one form may overflow" if outside else None


def rewrite(match: Match, make: Maker) -> Tensor:
    """Create one operation with one constant."""
    is_inverse, joined = _joined(match)
    constant, data = make.constant("constant", joined, match.array("first")), match.tensor("x")
    is_sum = match.node().op in SUMS
    if is_inverse:
        return make.node("Sub" if is_sum else "RealDiv", constant, data, like=match.node())
    return make.node("AddV2" if is_sum else "Mul", data, constant, like=match.node())


def _joined(match: Match) -> tuple[bool, NDArray[np.generic]]:
    """Return whether the data are inverted in the end, and the joined constant; integers wrap around."""
    first, second = match.array("first"), match.array("second")
    if not np.issubdtype(first.dtype, np.integer):
        first, second = first.astype(np.float64), second.astype(np.float64)
    inner, outer = match.node("inner"), match.node()
    inverses = [
        node.op in ("Sub", "RealDiv") and node.inputs[0] == match.tensor(role)
        for node, role in ((inner, "first"), (outer, "second"))
    ]
    with np.errstate(all="ignore"):
        if outer.op in SUMS:
            own = first if inverses[0] or inner.op != "Sub" else -first
            other = second if inverses[1] or outer.op != "Sub" else -second
            total = other - own if inverses[1] else other + own
        else:
            own = first if inverses[0] or inner.op != "RealDiv" else 1 / first
            other = second if inverses[1] or outer.op != "RealDiv" else 1 / second
            total = other / own if inverses[1] else other * own
    return inverses[0] != inverses[1], np.asarray(total)


LAW = LocalLaw(
    tuple(_patterns()),
    when,
    rewrite,
    rounds=True,
    after={"push_constants_together": "that law joins the other operands"},
    follows="share_common_factors",
)
