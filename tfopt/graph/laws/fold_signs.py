"""Move the sign of a product or quotient into its constant factor.

    -(x c) = x (-c)        (-x) c = x (-c)        -(x / c) = x / (-c)

    before    x -> Mul(c) -> Neg -> y
    after     x -> Mul(-c) -> y

The sign of a product is the product of the signs, also of zeros and infinities, so no bit changes; of NaN nothing but
the sign, which no operation of TensorFlow reads.

Requires: a product or quotient that nothing else reads.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op

PATTERNS = (
    op("Neg", op(("Mul", "RealDiv"), "x", const("constant"), role="product")),
    op(("Mul", "RealDiv"), op("Neg", "x", role="sign"), const("constant")),
)


def when(match: Match) -> str | None:
    return None if match.array("constant").dtype.kind in "fciV" else "the constant has no sign"  # V: bfloat16


def rewrite(match: Match, make: Maker) -> Tensor:
    product = match.node("product" if match.has("product") else "root")
    constant = match.array("constant")
    with np.errstate(over="ignore"):  # the smallest integer is its own negative
        negated = make.constant("negated", np.negative(constant), constant)
    return make.node(product.op, match.tensor("x"), negated, like=product)


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    after={"fold_shift": "a sign next to a kernel goes into the kernel"},
    before={"push_constants_together": "products are collected then"},
)
