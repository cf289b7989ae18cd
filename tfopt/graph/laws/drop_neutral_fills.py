"""Remove operations with a neutral element that the graph computes, as ones_like, zeros_like and fill do.

    x * ones_like(x) = x / ones_like(x) = x - zeros_like(x) = x * fill(shape(x), 1) = x and fill(shape(x), true) = x

    before    x -> OnesLike;  x, OnesLike -> Mul -> y
    after     x -> y

`drop_neutral_elements` does the same for constants. NaN and infinity stay. x + 0 turns -0 into 0, which matters to some
operations after it (`zero_signs`). Denormals stay, where the removed operation flushes them to zero.

Requires: the filled tensor has the shape of x itself, or both have the same static shape.

Source: `SimplifyArithmeticOperations` in Grappler's constant folding.
"""

from tfopt.graph.law import LocalLaw, Match, const, one_of, op, return_input
from tfopt.graph.matching.linear_ops import FLOATS
from tfopt.graph.matching.zero_signs import SUMS, sign_of_zero_matters

NEUTRAL = {"Add": 0, "AddV2": 0, "Sub": 0, "LogicalOr": 0, "Mul": 1, "RealDiv": 1, "Div": 1, "LogicalAnd": 1}
NEUTRAL |= {"FloorDiv": 1, "Pow": 1}
LIKE = op(("OnesLike", "ZerosLike"), "like", role="fill")
FILL = op("Fill", op("Shape", "like", role="shape"), const("neutral"), role="fill")
PATTERN = op(tuple(NEUTRAL), "x", one_of(FILL, LIKE))


def when(match: Match) -> str | None:
    node, fill = match.node(), match.node("fill")
    if fill.op == "Fill":
        value = match.array("neutral")
        if value.dtype.kind in "OSU" or value != NEUTRAL[node.op]:
            return "the value is not neutral"
    elif NEUTRAL[node.op] != (fill.op == "OnesLike"):
        return "the value is not neutral"
    if node.op in SUMS and _is_inexact(match) and sign_of_zero_matters(match.graph, node.name):
        return "x + 0 is 0 if x is -0, and the sign matters"
    if node.op == "FloorDiv" and _is_float(match):
        return "floats are rounded down"
    if match.tensor("like") == match.tensor("x"):
        return None
    shape = match.shape("x")
    same = shape is not None and None not in shape and shape == match.shape("like")
    return None if same else "it may have another shape"


def _is_float(match: Match) -> bool:
    return match.dtype() in FLOATS or match.dtype().startswith("complex")


def _is_inexact(match: Match) -> bool:
    negative = match.node("fill").op == "Fill" and str(match.array("neutral")).startswith("-")
    return _is_float(match) and (match.node().op != "Sub" or negative)


LAW = LocalLaw(
    (PATTERN,),
    when,
    return_input,
    after={"fold_reshape_sizes": "more shapes are known to be equal then"},
)
