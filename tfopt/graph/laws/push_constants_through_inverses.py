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

from tfopt.graph.law import LocalLaw, Maker, Match, Op, Tensor, const, op
from tfopt.graph.matching.joined_constants import (
    PRODUCTS,
    SUMS,
    Term,
    factor_refusal,
    join,
    range_refusal,
    read_term,
    refusal,
    summand_refusal,
)


def _patterns(ops: tuple[str, ...], inverse: str) -> tuple[Op, ...]:
    """Return the patterns in which one operation at least has the data as its second operand."""
    of_data = op(inverse, const("first"), "x", role="inner")
    return (
        op(ops, of_data, const("second")),
        op(inverse, const("second"), of_data),
        op(inverse, const("second"), op(ops, "x", const("first"), role="inner")),
    )


def when(match: Match) -> str | None:
    constants = match.array("first"), match.array("second")
    if reason := refusal(constants, divided="RealDiv" in (match.node().op, match.node("inner").op)):
        return reason
    joined, dtype = _joined(match).constant, constants[0].dtype
    if match.node().op in SUMS:
        return summand_refusal(constants, joined, dtype)
    reason = range_refusal(joined, dtype)
    return reason if reason or match.graph.fast_math else factor_refusal(*constants, joined)


def rewrite(match: Match, make: Maker) -> Tensor:
    joined, data, is_sum = _joined(match), match.tensor("x"), match.node().op in SUMS
    constant = make.constant("constant", joined.constant, match.array("first"))
    if joined.is_inverse:
        return make.node("Sub" if is_sum else "RealDiv", constant, data, like=match.node())
    return make.node("AddV2" if is_sum else "Mul", data, constant, like=match.node())


def _joined(match: Match) -> Term:
    inner, outer = read_term(match, "inner", "first"), read_term(match, "root", "second")
    direct = "AddV2" if match.node().op in SUMS else "Mul"
    joined = join(match.node().op if outer.is_inverse else direct, outer.constant, inner.constant)
    return Term(joined, inner.is_inverse != outer.is_inverse)


LAW = LocalLaw(
    (*_patterns(SUMS, "Sub"), *_patterns(PRODUCTS, "RealDiv")),
    when,
    rewrite,
    rounds=True,
    after={"push_constants_together": "that law joins the other operands"},
)
