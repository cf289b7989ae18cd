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

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.joined_constants import cancellation_refusal, growth_refusal, range_refusal
from tfopt.graph.matching.linear_ops import FLOATS, PLAIN, TRANSPOSED
from tfopt.graph.matching.pattern import Op, const, op
from tfopt.graph.mutable_graph import Tensor

SUMS = ("AddV2", "Add", "Sub")
INNER = (*SUMS, "BiasAdd")
DATA, CONSTANTS = {"left": "x", "right": "y"}, {"left": "first", "right": "second"}


def _sides(side: str) -> tuple[Op, Op]:
    data, constant = DATA[side], const(CONSTANTS[side])
    return op(INNER, data, constant, role=side), op("Sub", constant, data, role=side)


PATTERNS = tuple(op(SUMS, left, right) for left in _sides("left") for right in _sides("right"))


def when(match: Match) -> str | None:
    """Refuse other shapes, biases of kernels, and constants whose join grows, overflows or cancels."""
    first, second = match.array("first"), match.array("second")
    integers = np.issubdtype(first.dtype, np.integer)
    if not integers and first.dtype.name not in FLOATS:
        return f"the constants are {first.dtype.name}"
    if any(match.graph.nodes[match.tensor(role).node].op in (*PLAIN, *TRANSPOSED) for role in ("x", "y")):
        return "a constant is the bias of a kernel"
    if any(
        match.node(side).op == "BiasAdd" and match.attr("data_format", side) == "NCHW" for side in ("left", "right")
    ):
        return "a bias is along the second axis"
    if match.shape("x") is None or match.shape("x") != match.shape("y"):
        return "the other summands are not known to have the same shape"
    if reason := growth_refusal(first, second):
        return reason
    if integers:
        return None
    joined = _joined(match)
    return range_refusal(joined, first.dtype) or cancellation_refusal(first, second, joined)


def rewrite(match: Match, make: Maker) -> Tensor:
    """Create the sum or difference of x and y, and then that with the constants."""
    constant = make.constant("constant", _joined(match), match.array("first"))
    (x_sign, _), (y_sign, _) = _term(match, "left"), _term(match, "right")
    x, y = match.tensor("x"), match.tensor("y")
    if x_sign == y_sign:
        total = make.node("AddV2", x, y, like=match.node())
    else:
        total = make.node("Sub", *((x, y) if x_sign > 0 else (y, x)), like=match.node())
    match.graph.know_shape(total, x)
    if x_sign == y_sign == -1:
        return make.node("Sub", constant, total, like=match.node())
    return make.node("AddV2", total, constant, like=match.node())


def _joined(match: Match) -> NDArray[np.generic]:
    """Compute the joined constant, for integers in their own type, so that they wrap around."""
    with np.errstate(all="ignore"):
        return np.asarray(np.add(_term(match, "left")[1], _term(match, "right")[1]))


def _term(match: Match, side: str) -> tuple[int, NDArray[np.generic]]:
    """Return the sign of x or y in the whole sum, and the constant next to it with its sign."""
    node, constant = match.node(side), match.array(CONSTANTS[side])
    if not np.issubdtype(constant.dtype, np.integer):
        constant = constant.astype(np.float64)
    sign = 1
    with np.errstate(all="ignore"):
        if node.op == "Sub" and node.inputs[1] == match.tensor(DATA[side]):
            sign = -1
        elif node.op == "Sub":
            constant = np.asarray(-constant)
        return (-sign, np.asarray(-constant)) if side == "right" and match.node().op == "Sub" else (sign, constant)


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
