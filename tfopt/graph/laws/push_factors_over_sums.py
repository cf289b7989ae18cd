"""Push a factor over a sum with a constant, towards a factor before it.

    (x * c + d) * e = x * (c e) + d e        (x / c - d) / e = x / (c e) - d / e        also with a bias in place of d

    before    x -> Mul(c) -> AddV2(d) -> Mul(e) -> y
    after     x -> Mul(c e) -> AddV2(d e) -> y

It is what remains of two normalizations of an input, one after the other. The float result is rounded at other places.
A sum that is multiplied, ``(x + c) * d + e``, stays: ``x * d`` and ``c d + e`` may be far larger than the result, as
they are for a mean and a small deviation.

Requires:
    - No joined constant is larger than the larger one of the two.
    - The joined constants are finite, and factors of floats are between one millionth and a million.
    - Integers are not divided.
    - A bias is along the last axis.

Source: the same equation for trees of one operation is `ConstantPushDown` in Grappler's constant folding.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.joined_constants import (
    PRODUCTS,
    SUMS,
    Constant,
    factor_refusal,
    growth_refusal,
    join,
    range_refusal,
    read_term,
    refusal,
)

PRODUCT = op(PRODUCTS, "x", const("first"), role="product")
PATTERN = op(PRODUCTS, op((*SUMS, "BiasAdd"), PRODUCT, const("summand"), role="sum"), const("second"))


def when(match: Match) -> str | None:
    if match.node("sum").op == "BiasAdd" and match.attr("data_format", "sum") == "NCHW":
        return "the bias is along the second axis"
    first, summand, second = (match.array(role) for role in ("first", "summand", "second"))
    is_divided = "RealDiv" in (match.node().op, match.node("product").op)
    if reason := refusal((first, second), divided=is_divided) or growth_refusal(summand, second):
        return reason
    if first.dtype.kind in "iu":
        return None
    factor, rest = _joined(match)
    product, _, last = _terms(match)
    reasons = (
        factor_refusal(product, last, factor),
        range_refusal(factor, first.dtype),
        range_refusal(rest, first.dtype),
    )
    return next(filter(None, reasons), None)


def rewrite(match: Match, make: Maker) -> Tensor:
    factor, rest = (
        make.constant(role, array, match.array("first"))
        for role, array in zip(("factor", "summand"), _joined(match), strict=True)
    )
    return make.node("AddV2", make.node("Mul", match.tensor("x"), factor, like=match.node()), rest, like=match.node())


def _joined(match: Match) -> tuple[Constant, Constant]:
    """Return the factor of x and the summand behind it."""
    product, summand, last = _terms(match)
    return join("Mul", product, last), join("Mul", summand, last)


def _terms(match: Match) -> list[Constant]:
    roles = (("product", "first"), ("sum", "summand"), ("root", "second"))
    return [read_term(match, role, constant).constant for role, constant in roles]


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={
        "push_constants_together": "each operand has a single constant then",
        "push_constants_over_trees": "each operand has a single constant then",
        "fold_scale": "a factor next to a kernel goes into the kernel",
    },
)
