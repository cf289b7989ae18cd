"""What is multiplied by zero is zero, if nothing that is multiplied is ever infinite or NaN.

    x * 0 = 0 * x = 0

    before    x (float32) -> Mul(0) -> y
    after     Const(0, …) -> y

Off unless it is asked for by name: NaN * 0 and infinity * 0 are NaN, and a graph does not show that x is neither. The
types for which it is always true are those of `fold_absorbing_elements`. Needs: a static shape of the result.
"""

from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Rule
from tfopt.graph.rewrites.fold_absorbing_elements import refusal, rewrite

LAW = Rule((op("Mul", "x", const("absorbing")),), refusal, rewrite)
