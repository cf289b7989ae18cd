"""Join constants of two sums that are added.

    (x + c) + (y + d) = (x + y) + (c + d)        (x - c) - (y + d) = (x - y) + (-c - d)
    (c - x) + (y + d) = (y - x) + (c + d)        (c - x) + (d - y) = (c + d) - (x + y)

    before    x -> AddV2(c) -> AddV2 -> z
              y -> AddV2(d) ->
    after     x, y -> AddV2 -> AddV2(c + d) -> z

It holds for real numbers: x + y is rounded at another place, and next to the largest floats one form may overflow where
the other does not. Integers are exact modulo the range of their type.

Requires:
    - x and y have the same static shape, so that no sum becomes larger.
    - Neither constant is the bias of a kernel: that addition is fused with the kernel, and costs nothing.
    - The shape of both constants, broadcast, is not larger than the larger constant.
    - The joined constant is finite, and float summands do not cancel: (x + 1e8) + (y - 1e8) differs from x + y by
      rounding.

Source: `ConstantPushDown` in Grappler's constant folding, and its `AddOpsRewrite`.
"""

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.joined_constants import SUMS, joined_sides, read_term, refusal, side_refusal, summand_refusal
from tfopt.graph.matching.pattern import Op, const, op
from tfopt.graph.mutable_graph import Tensor


def _sides(side: str, data: str, constant: str) -> tuple[Op, Op]:
    of_data = op((*SUMS, "BiasAdd"), data, const(constant), role=side)
    return of_data, op("Sub", const(constant), data, role=side)


LEFT, RIGHT = _sides("left", "x", "first"), _sides("right", "y", "second")
PATTERNS = tuple(op(SUMS, left, right) for left in LEFT for right in RIGHT)


def when(match: Match) -> str | None:
    """Refuse other shapes, biases of kernels, and constants whose join grows, overflows or cancels."""
    biases = [side for side in ("left", "right") if match.node(side).op == "BiasAdd"]
    if any(match.attr("data_format", side) == "NCHW" for side in biases):
        return "a bias is along the second axis"
    return refusal(match) or side_refusal(match, "bias") or summand_refusal(match, joined_sides(match))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Create the sum or difference of x and y, and then that with the constants."""
    constant, like = make.constant("constant", joined_sides(match), match.array("first")), match.node()
    is_x_negative = read_term(match, "left", "first").is_inverse
    is_y_negative = read_term(match, "right", "second").is_inverse != (like.op == "Sub")
    x, y = match.tensor("x"), match.tensor("y")
    if is_x_negative == is_y_negative:
        total = make.node("AddV2", x, y, like=like)
    else:
        total = make.node("Sub", *((y, x) if is_x_negative else (x, y)), like=like)
    match.graph.know_shape(total, x)
    if is_x_negative and is_y_negative:
        return make.node("Sub", constant, total, like=like)
    return make.node("AddV2", total, constant, like=like)


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    rounds=True,
    after={
        "push_constants_together": "each operand has a single constant then",
        "push_constants_through_inverses": "each operand has a single constant then",
    },
)
