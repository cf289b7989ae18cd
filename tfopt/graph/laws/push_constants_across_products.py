"""Join constants of two products that are multiplied.

    (x * c) * (y * d) = (x * y) * (c d)        (x * c) / (y * d) = (x / y) * (c / d)

    before    x -> Mul(c) -> Mul -> z
              y -> Mul(d) ->
    after     x, y -> Mul -> Mul(c d) -> z

It holds for real numbers: the result is rounded at other places, and next to the largest floats one form may overflow
where the other does not. Integers are exact modulo the range of their type. `push_constants_across_sums` does the same
for sums.

Requires:
    - x and y have the same static shape, so that no product becomes larger.
    - Neither constant is the scale of a kernel, into which it would be folded.
    - The shape of both constants, broadcast, is not larger than the larger constant.
    - Factors of floats between one millionth and a million, and no integers that are divided.

Source: `ConstantPushDown` in Grappler's constant folding.
"""

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.joined_constants import PRODUCTS, factor_refusal, joined_sides, refusal, side_refusal
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

LEFT, RIGHT = op(PRODUCTS, "x", const("first"), role="left"), op(PRODUCTS, "y", const("second"), role="right")


def when(match: Match) -> str | None:
    """Refuse other shapes, scales of kernels, and constants whose join grows or may overflow."""
    reason = refusal(match, "root", "left", "right") or side_refusal(match, "scale")
    return reason or factor_refusal(match, joined_sides(match))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Create the product of x and y, and then that with the constants."""
    constant = make.constant("constant", joined_sides(match), match.array("first"))
    product = make.node(match.node().op, match.tensor("x"), match.tensor("y"), like=match.node())
    match.graph.know_shape(product, match.tensor("x"))
    return make.node("Mul", product, constant, like=match.node())


LAW = LocalLaw(
    (op(PRODUCTS, LEFT, RIGHT),),
    when,
    rewrite,
    rounds=True,
    after={
        "push_constants_together": "each operand has a single constant then",
        "push_constants_through_inverses": "each operand has a single constant then",
    },
)
