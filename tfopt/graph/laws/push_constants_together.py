"""Join constants that are added, or multiplied, one after another.

    (x + c) + d = x + (c + d)        (x * c) * d = x * (c d)
    (x - c) + d = x + (d - c)        (x / c) * d = x * (d / c)        bias(bias(x, c), d) = bias(x, c + d)

    before    x -> AddV2(c) -> AddV2(d) -> y
    after     x -> AddV2(c + d) -> y

The float result is rounded once instead of twice. Integer sums and products are exact modulo the range of the type.

Requires:
    - The shape of both constants, broadcast, is not larger than the larger constant.
    - The joined constant is finite, and a product of nonzero factors does not underflow to zero.
    - A product of floats does not leave the range and come back: x * 1e30 * 1e-30 is infinite for x = 1e10. Between
      factors that are both above 1 or below, only numbers next to the limits of the type overflow in one form only.
    - Float summands do not cancel: (x + 1e8) - 1e8 differs from x by rounding.
    - Integers are not divided.
    - Biases are along the same axis; one along the second axis (NCHW) is joined with another one, or with a number.

Source: `ConstantPushDown` in Grappler's constant folding.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.joined_constants import (
    LEAST,
    PRODUCTS,
    SUMS,
    Constant,
    join,
    range_refusal,
    read_term,
    refusal,
    summand_refusal,
)

PATTERNS = tuple(
    op(ops, op(ops, "x", const("first"), role="inner"), const("second")) for ops in ((*SUMS, "BiasAdd"), PRODUCTS)
)


def when(match: Match) -> str | None:
    constants = match.array("first"), match.array("second")
    is_divided = "RealDiv" in (match.node().op, match.node("inner").op)
    if reason := _bias_refusal(match) or refusal(constants, divided=is_divided):
        return reason
    if match.node().op in PRODUCTS:
        return _factor_refusal(match)
    return summand_refusal(constants, _joined(match), constants[0].dtype)


def rewrite(match: Match, make: Maker) -> Tensor:
    joined = _joined(match)
    constant = make.constant("constant", joined, match.array("first"))
    biases = _biases(match)
    if biases and joined.ndim == 1:
        return make.node("BiasAdd", match.tensor("x"), constant, like=match.node(biases[0]))
    operation = "Mul" if match.node().op in PRODUCTS else "AddV2"
    return make.node(operation, match.tensor("x"), constant, like=match.node())


def _biases(match: Match) -> list[str]:
    return [role for role in ("inner", "root") if match.node(role).op == "BiasAdd"]


def _bias_refusal(match: Match) -> str | None:
    biases = _biases(match)
    formats = {match.attr("data_format", role) for role in biases}
    if len(formats) > 1:
        return "the biases are along different axes"
    other = "first" if biases == ["root"] else "second"
    if "NCHW" in formats and len(biases) == 1 and match.array(other).ndim:
        return "the bias is along the second axis, and the other constant is no number"
    return None


def _factor_refusal(match: Match) -> str | None:
    first, second = (match.array(role).astype(np.float64) for role in ("first", "second"))
    dtype, joined = match.array("first").dtype, _joined(match)
    if dtype.kind in "iu":
        return None
    if reason := range_refusal(joined, dtype):
        return reason
    rounded = np.abs(joined.astype(dtype).astype(np.float64))
    if np.any((rounded == 0) & (first * second != 0)):
        return "the joined constant would be zero"
    factor = np.abs(read_term(match, "inner", "first").constant)
    leaves = np.any((factor > 1) & (rounded <= 1)) or np.any((factor < LEAST) & (rounded >= 1))
    if leaves and not match.graph.fast_math:
        return "the product before it may be infinite or zero where the joined one is not"
    return None


def _joined(match: Match) -> Constant:
    first, second = read_term(match, "inner", "first"), read_term(match, "root", "second")
    return join("Mul" if match.node().op in PRODUCTS else "AddV2", first.constant, second.constant)


LAW = LocalLaw(PATTERNS, when, rewrite, after={"fold_shift": "a constant next to a kernel goes into the kernel"})
