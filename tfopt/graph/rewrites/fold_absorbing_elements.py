"""What is multiplied by zero is zero, where no value can be infinite or NaN.

    x * 0 = 0 * x = 0        x and false = false        x or true = true

    before    x (int32) -> Mul(0) -> y
    after     Const(0, …) -> y

NaN * 0 and infinity * 0 are NaN. So the law holds for integers and truth values, and for floats that were cast from a
type whose every value is finite in them. Off for all other floats: `fold_zero_products` does that where it is asked
for. Needs: a static shape of the result, which a constant may have made larger than x, and no more than `LARGEST`
bytes.
"""

import math

import numpy as np

from tfopt.graph.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule, attr
from tfopt.graph.rewrites.fold_constants import LARGEST

ABSORBING = {"Mul": 0, "LogicalAnd": 0, "LogicalOr": 1}
PATTERN = op(tuple(ABSORBING), "x", const("absorbing"))
SMALL = {"bool", "int8", "uint8", "int16"}  # finite in every float


def when(match: Match) -> str | None:
    """Refuse other numbers, floats that may be NaN or infinite, and unknown shapes."""
    if match.array("absorbing").dtype.name in FLOATS and not _is_finite(match):
        return refusal(match) or "x * 0 is NaN where x is NaN or infinite"
    return refusal(match)


def rewrite(match: Match, make: Maker) -> Tensor:
    """Zeros."""
    array, shape = match.array("absorbing"), [side or 0 for side in match.shape("root") or ()]
    return make.constant("zeros", np.full(shape, ABSORBING[match.node().op], array.dtype))


def refusal(match: Match) -> str | None:
    """Why the result is not a constant of a known shape, whatever x is."""
    array, shape = match.array("absorbing"), match.shape("root")
    if array.dtype.kind in "OSU" or not array.size or not bool(np.all(array == ABSORBING[match.node().op])):
        return "the constant does not absorb"
    if shape is None or None in shape:
        return "the shape of the result is not known"
    size = math.prod(side or 0 for side in shape) * array.itemsize
    return f"it would take {size:,} bytes" if size > LARGEST else None


def _is_finite(match: Match) -> bool:
    from tensorflow import as_dtype

    source = match.graph.nodes[match.tensor("x").node]
    return source.op == "Cast" and as_dtype(attr(source, "SrcT")).name in SMALL


LAW = Rule((PATTERN,), when, rewrite)
