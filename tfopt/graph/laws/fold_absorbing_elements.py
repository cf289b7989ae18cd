"""Replace a product with zero by zeros, if no value can be infinite or NaN.

    x * 0 = 0 * x = 0        x and false = false        x or true = true

    before    x (int32) -> Mul(0) -> y
    after     Const(0, …) -> y

NaN * 0 and infinity * 0 are NaN. The law therefore holds for integers and bools, and for floats cast from a dtype whose
values are all finite in them, if no operation depends on the sign of a zero (`zero_signs`). For all other floats there
is `fold_zero_products`, which runs only if it is requested, or with ``fast_math``.

Requires: a static shape of the result, and at most `LARGEST` bytes.
"""

import math

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, attr, const, op
from tfopt.graph.laws.fold_constants import LARGEST
from tfopt.graph.matching.linear_ops import FLOATS
from tfopt.graph.matching.zero_signs import sign_of_zero_matters

ABSORBING = {"Mul": 0, "LogicalAnd": 0, "LogicalOr": 1}
PATTERN = op(tuple(ABSORBING), "x", const("absorbing"))
SMALL = {"bool", "int8", "uint8", "int16"}  # finite in every float dtype


def when(match: Match) -> str | None:
    if match.array("absorbing").dtype.name in FLOATS and not _is_finite(match):
        return refusal(match) or "x * 0 is NaN if x is NaN or infinite"
    if match.array("absorbing").dtype.name in FLOATS and sign_of_zero_matters(match.graph, match.node().name):
        return refusal(match) or "x * 0 is -0 if x is negative, and the sign matters"
    return refusal(match)


def rewrite(match: Match, make: Maker) -> Tensor:
    array, shape = match.array("absorbing"), [side or 0 for side in match.shape("root") or ()]
    return make.constant("zeros", np.full(shape, ABSORBING[match.node().op], array.dtype))


def refusal(match: Match) -> str | None:
    """Return why the result is not a constant with a known shape for every x, or None."""
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


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    after={
        "push_constants_over_trees": "some joined constants are 0",
        "push_exact_constants": "some joined constants are absorbing",
    },
)
