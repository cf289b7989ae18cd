"""Replace a division by a power of two by a product, which is faster and can be folded with others.

    x / c = x * (1 / c)    if 1 / c is exact

    before    x -> RealDiv(256) -> y
    after     x -> Mul(1 / 256) -> y

Both round the same number, so that they are equal to the last bit. For any other c, 1 / c is rounded first;
`fold_scale` and `fold_scale_before` fold such quotients into kernels.

Requires: floats; c and 1 / c are neither infinite nor denormal, which some processors treat as zero.
"""

import ml_dtypes
import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.linear_ops import FLOATS

PATTERN = op(("RealDiv", "Div"), "x", const("divisor"))


def when(match: Match) -> str | None:
    array = match.array("divisor")
    if array.dtype.name not in FLOATS:
        return f"the divisor is {array.dtype.name}"
    parts, exponents = np.frexp(array.astype(np.float64))
    if not bool((np.abs(parts) == 0.5).all()):
        return "1 / c would be rounded"
    limits = ml_dtypes.finfo(array.dtype)
    least, most = (int(np.frexp(float(limit))[1]) for limit in (limits.tiny, limits.max))
    inverse = 2 - exponents  # the exponents that frexp returns for 1 / c
    fits = (inverse >= least) & (inverse <= most) & (exponents >= least)
    return None if bool(fits.all()) else "c or 1 / c has not all its digits in the type"


def rewrite(match: Match, make: Maker) -> Tensor:
    array = match.array("divisor")
    inverse = make.constant("factor", 1 / array.astype(np.float64), array)
    return make.node("Mul", match.tensor("x"), inverse, like=match.node())


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    after={"fold_shift": "the folds fold any quotient"},
    before={"push_constants_together": "products are collected then"},
)
