"""A division by a power of two is a product, and a product is faster and meets other products.

    x / c = x * (1 / c)    where 1 / c is exact

    before    x -> RealDiv(256) -> y
    after     x -> Mul(1 / 256) -> y

Both round the same number, so they are equal to the last bit. Off for any other c, whose 1 / c is rounded first; where
the quotient goes into a kernel, `fold_scale` and `fold_scale_before` take it there. Needs: floats, and a c and a 1 / c
that are neither infinite nor so small that processors take them for zero.
"""

import numpy as np

from tfopt.graph.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERN = op(("RealDiv", "Div"), "x", const("divisor"))


def when(match: Match) -> str | None:
    """Refuse other numbers than powers of two."""
    array = match.array("divisor")
    if array.dtype.name not in FLOATS:
        return f"the divisor is {array.dtype.name}"
    parts, exponents = np.frexp(array.astype(np.float64))
    if not bool((np.abs(parts) == 0.5).all()):
        return "1 / c would be rounded"
    from tensorflow import as_dtype

    kind = as_dtype(array.dtype)
    least, most = (int(np.frexp(float(limit))[1]) for limit in (_tiny(array.dtype.name), kind.max))
    inverse = 2 - exponents  # what frexp gives for 1 / c
    fits = (inverse >= least) & (inverse <= most) & (exponents >= least)
    return None if bool(fits.all()) else "c or 1 / c has not all its digits in the type"


def rewrite(match: Match, make: Maker) -> Tensor:
    """A product."""
    array = match.array("divisor")
    inverse = make.constant("factor", 1 / array.astype(np.float64), array)
    return make.node("Mul", match.tensor("x"), inverse, like=match.node())


def _tiny(kind: str) -> float:
    """The smallest number of a type that has all its digits."""
    return 2.0**-126 if kind == "bfloat16" else float(np.finfo(kind).tiny)


LAW = Rule((PATTERN,), when, rewrite)
