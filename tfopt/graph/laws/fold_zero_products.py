"""Replace a product of floats with zero by zeros, assuming that no value is infinite or NaN.

    x * 0 = 0 * x = 0

    before    x (float32) -> Mul(0) -> y
    after     Const(0, …) -> y

It runs only if it is requested by name: NaN * 0 and infinity * 0 are NaN, and a graph does not show that x is neither.
`fold_absorbing_elements` has the dtypes for which it always holds.

Requires: a static shape of the result.
"""

from tfopt.graph.law import LocalLaw, const, op
from tfopt.graph.laws.fold_absorbing_elements import refusal, rewrite

LAW = LocalLaw(
    (op("Mul", "x", const("absorbing")),),
    refusal,
    rewrite,
    opt_in="it holds where no factor is ever infinite or NaN",
    fast_math=True,
    after={"fold_absorbing_elements": "that law holds for all inputs"},
)
