"""Replace a product of floats with zero by zeros, assuming that no value is infinite or NaN.

    x * 0 = 0 * x = 0

    before    x (float32) -> Mul(0) -> y
    after     Const(0, …) -> y

It runs only if it is requested by name: NaN * 0 and infinity * 0 are NaN, and a graph does not show that x is neither.
The dtypes for which it always holds are those of `fold_absorbing_elements`.

Requires: a static shape of the result.
"""

from tfopt.graph.matching.pattern import const, op
from tfopt.graph.rewrite_rule import Rule
from tfopt.graph.rewrites.fold_absorbing_elements import refusal, rewrite

LAW = Rule((op("Mul", "x", const("absorbing")),), refusal, rewrite)
