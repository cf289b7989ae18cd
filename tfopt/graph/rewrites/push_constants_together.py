"""Constants that are added one after another are one constant, and so are factors.

    (x + c) + d = x + (c + d)        (x * c) * d = x * (c d)
    (x - c) + d = x + (d - c)        (x / c) * d = x * (d / c)

    before    x -> AddV2(c) -> AddV2(d) -> y
    after     x -> AddV2(c + d) -> y

Grappler calls this constant push-down. The sum is rounded once rather than twice. Needs: constants that meet in a shape
no larger than the larger of them, a sum that is finite, a product that is not too small for the type, and floats that
do not cancel: (x + 1e8) - 1e8 is no x to begin with, and stays as it is. Integers are added modulo their range, where
the law holds as it stands; their quotients are not touched.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

SUMS, PRODUCTS = ("AddV2", "Add", "Sub"), ("Mul", "RealDiv")
PATTERNS = tuple(
    op(ops, op(ops, "x", const("first"), role="inner"), const("second")) for ops in (SUMS, PRODUCTS)
)  # fmt: skip
CANCELLED = 1e-3  # of the larger constant


def when(match: Match) -> str | None:
    """Refuse what would grow, overflow, vanish or cancel."""
    first, second = match.array("first"), match.array("second")
    integers = np.issubdtype(first.dtype, np.integer)
    if not integers and first.dtype.name not in FLOATS:
        return f"the constants are {first.dtype.name}"
    if integers and "RealDiv" in (match.node().op, match.node("inner").op):
        return "integers are divided"
    try:
        size = int(np.prod(np.broadcast_shapes(first.shape, second.shape)))
    except ValueError:
        return "the constants do not meet in one shape"
    if size > max(first.size, second.size):
        return "together the constants would be larger"
    return None if integers else _float_refusal(match)


def rewrite(match: Match, make: Maker) -> Tensor:
    """One operation and one constant."""
    constant = make.constant("constant", _together(match), match.array("first"))
    kind = "Mul" if match.node().op in PRODUCTS else "AddV2"
    return make.node(kind, match.tensor("x"), constant, like=match.node())


def _float_refusal(match: Match) -> str | None:
    first, second = (match.array(role).astype(np.float64) for role in ("first", "second"))
    together = _together(match)
    with np.errstate(over="ignore"):
        if not np.isfinite(together.astype(match.array("first").dtype).astype(np.float64)).all():
            return "together the constants would not be finite"
    is_sum = match.node().op in SUMS
    if not is_sum and np.any((together.astype(match.array("first").dtype) == 0) & (first * second != 0)):
        return "together the constants would be zero"
    if is_sum and np.any(np.abs(together) < CANCELLED * np.maximum(np.abs(first), np.abs(second))):
        return "the constants cancel, and what they round away would come back"
    return None


def _together(match: Match) -> NDArray[np.float64]:
    """Both constants as one to add, or to multiply by; integers in their own type, where they wrap around."""
    first, second = match.array("first"), match.array("second")
    if not np.issubdtype(first.dtype, np.integer):
        first, second = first.astype(np.float64), second.astype(np.float64)
    inner, outer = match.node("inner").op, match.node().op
    with np.errstate(all="ignore"):
        if outer in SUMS:
            return np.asarray((-first if inner == "Sub" else first) + (-second if outer == "Sub" else second))
        return np.asarray((1 / first if inner == "RealDiv" else first) * (1 / second if outer == "RealDiv" else second))


LAW = Rule(PATTERNS, when, rewrite)
