"""Replace 0 - y by Neg and 1 / y by Reciprocal, which need no constant.

    0 - y = Neg(y)        1 / y = Reciprocal(y)

    before    Const(0) -> Sub(y) -> z
    after     y -> Neg -> z

NaN and infinity stay. 0 - 0 is 0 and Neg(0) is -0: they compare equal, but 1 / -0 is -infinity.

Requires: a constant that does not make the shape larger; a signed dtype; for 0 - y of floats, no operation after
it that depends on the sign of a zero (`zero_signs`).
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.laws.drop_neutral_elements import enlarges
from tfopt.graph.matching.linear_ops import FLOATS
from tfopt.graph.matching.zero_signs import sign_of_zero_matters

UNARY = {"Sub": ("Neg", 0), "RealDiv": ("Reciprocal", 1)}
SIGNED = {"int8", "int16", "int32", "int64"}
PATTERN = op(tuple(UNARY), const("left"), "y")


def when(match: Match) -> str | None:
    (unary, neutral), array = UNARY[match.node().op], match.array("left")
    if array.dtype.name not in (FLOATS | SIGNED if unary == "Neg" else FLOATS):
        return f"there is no {unary} of {array.dtype.name}"
    if not array.size or not bool((array == neutral).all()):
        return f"the constant is not {neutral}"
    is_changed = unary == "Neg" and array.dtype.name in FLOATS and not np.signbit(array.astype(np.float64)).all()
    if is_changed and sign_of_zero_matters(match.graph, match.node().name):
        return "0 - 0 is 0, Neg(0) is -0, and the sign matters"
    return enlarges(array, match.shape("y"))


def rewrite(match: Match, make: Maker) -> Tensor:
    return make.node(UNARY[match.node().op][0], match.tensor("y"), like=match.node())


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    after={"fold_shift": "a sign next to a kernel goes into the kernel"},
    follows="fold_absorbing_elements",
)
