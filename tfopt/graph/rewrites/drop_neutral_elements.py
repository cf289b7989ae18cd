"""Adding nothing and multiplying by one equals the input.

    x + 0 = 0 + x = x - 0 = x * 1 = 1 * x = x / 1 = x

    before    x -> Mul(1) -> AddV2(0) -> Relu
    after     x -> Relu

NaN and infinity stay what they are in each of these. Needs: a constant that does not make the shape larger, so where it
has axes of its own the static shape of x must show that. Off, since NaN * 0 and infinity * 0 are NaN: x * 0 = 0.
x + 0 turns -0 into 0, which no comparison tells apart; that is the one difference.
"""

import numpy as np

from tfopt.graph.pattern import const, op
from tfopt.graph.rule import Maker, Match, Rule
from tfopt.graph.view import Tensor

NEUTRAL = {"Add": 0, "AddV2": 0, "Sub": 0, "BiasAdd": 0, "Mul": 1, "RealDiv": 1, "Div": 1}
PATTERN = op(tuple(NEUTRAL), "x", const("neutral"))


def when(match: Match) -> str | None:
    """Refuse other numbers, and those that make the shape larger."""
    array, node = match.array("neutral"), match.node()
    if array.dtype.kind in "OSU" or not array.size or not bool(np.all(array == NEUTRAL[node.op])):
        zero = node.op == "Mul" and array.size and array.dtype.kind not in "OSUiu" and not np.any(array != 0)
        return "x * 0 is NaN where x is NaN or infinite" if zero else "the constant is not neutral"
    shape = match.shape("x")
    if node.op == "BiasAdd" or array.ndim == 0:
        return None
    if shape is None:
        return "the shape of the input is not known"
    sizes = (1,) * (len(shape) - array.ndim) + array.shape
    same = array.ndim <= len(shape) and all(size in (1, own) for size, own in zip(sizes, shape, strict=True))
    return None if same else "the constant may make the shape larger"


def rewrite(match: Match, make: Maker) -> Tensor:
    """The input."""
    return match.tensor("x")


LAW = Rule((PATTERN,), when, rewrite)
