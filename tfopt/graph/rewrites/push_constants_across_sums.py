"""Join constants of two sums that are added.

    (x + c) + (y + d) = (x + y) + (c + d)        (x - c) - (y + d) = (x - y) + (-c - d)

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

from tfopt.graph.joined_constants import cancellation_refusal, growth_refusal, range_refusal
from tfopt.graph.linear_ops import FLOATS, PLAIN, TRANSPOSED
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

SUMS = ("AddV2", "Add", "Sub")
INNER = (*SUMS, "BiasAdd")
PATTERNS = (op(SUMS, op(INNER, "x", const("first"), role="left"), op(INNER, "y", const("second"), role="right")),)


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
    """Create the sum of x and y, and then that of the constants."""
    constant = make.constant("constant", _joined(match), match.array("first"))
    operation = "Sub" if match.node().op == "Sub" else "AddV2"
    total = make.node(operation, match.tensor("x"), match.tensor("y"), like=match.node())
    match.graph.know_shape(total, match.tensor("x"))
    return make.node("AddV2", total, constant, like=match.node())


def _joined(match: Match) -> NDArray[np.generic]:
    """Compute the joined constant, for integers in their own type, so that they wrap around."""
    first, second = match.array("first"), match.array("second")
    if not np.issubdtype(first.dtype, np.integer):
        first, second = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        left = -first if match.node("left").op == "Sub" else first
        right = second if (match.node("right").op == "Sub") == (match.node().op == "Sub") else -second
        return np.asarray(left + right)


LAW = Rule(PATTERNS, when, rewrite)
