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

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.laws.push_constants_through_inverses import LEAST, MOST
from tfopt.graph.matching.joined_constants import growth_refusal
from tfopt.graph.matching.linear_ops import FLOATS, PLAIN, TRANSPOSED
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PRODUCTS = ("Mul", "RealDiv")
PATTERNS = (
    op(PRODUCTS, op(PRODUCTS, "x", const("first"), role="left"), op(PRODUCTS, "y", const("second"), role="right")),
)


def when(match: Match) -> str | None:
    """Refuse other shapes, scales of kernels, and constants whose join grows or may overflow."""
    first, second = match.array("first"), match.array("second")
    integers = np.issubdtype(first.dtype, np.integer)
    if not integers and first.dtype.name not in FLOATS:
        return f"the constants are {first.dtype.name}"
    if integers and "RealDiv" in (match.node(role).op for role in ("root", "left", "right")):
        return "integers are divided"
    if any(match.graph.nodes[match.tensor(role).node].op in (*PLAIN, *TRANSPOSED) for role in ("x", "y")):
        return "a constant is the scale of a kernel"
    if match.shape("x") is None or match.shape("x") != match.shape("y"):
        return "the other factors are not known to have the same shape"
    if reason := growth_refusal(first, second):
        return reason
    if integers:
        return None
    factors = [np.abs(array.astype(np.float64)) for array in (first, second, _joined(match))]
    outside = any(((factor < LEAST) | (factor > MOST)).any() for factor in factors)
    return "a factor is so small or large that one form may overflow" if outside else None


def rewrite(match: Match, make: Maker) -> Tensor:
    """Create the product of x and y, and then that with the constants."""
    constant = make.constant("constant", _joined(match), match.array("first"))
    product = make.node(match.node().op, match.tensor("x"), match.tensor("y"), like=match.node())
    match.graph.know_shape(product, match.tensor("x"))
    return make.node("Mul", product, constant, like=match.node())


def _joined(match: Match) -> NDArray[np.generic]:
    """Compute the joined factor, for integers in their own type, so that they wrap around."""
    first, second = match.array("first"), match.array("second")
    if not np.issubdtype(first.dtype, np.integer):
        first, second = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        left = 1 / first if match.node("left").op == "RealDiv" else first
        right = 1 / second if match.node("right").op == "RealDiv" else second
        return np.asarray(left / right if match.node().op == "RealDiv" else left * right)


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
