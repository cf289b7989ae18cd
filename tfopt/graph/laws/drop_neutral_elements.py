"""Remove additions of 0, multiplications by 1, and similar operations with a neutral element.

    x + 0 = 0 + x = x - 0 = x * 1 = 1 * x = x / 1 = x ** 1 = x and true = x or false = x

    before    x -> Mul(1) -> AddV2(0) -> Relu
    after     x -> Relu

If the constant makes the shape larger, a BroadcastTo remains: x * ones(2, 3) = BroadcastTo(x, (2, 3)). NaN and infinity
stay. x + 0 turns -0 into 0, which compares equal, but 1 / -0 is -infinity. Denormals stay, where the removed operation
flushes them to zero.

Requires: for x + 0 of floats, that no operation after it depends on the sign of a zero (`zero_signs`); x - 0 and
x + (-0) change no sign. No complex product or power: (infinity + 0i) * 1 has a NaN. Unless the constant is a scalar, a
static shape of x that shows that the constant does not make it larger, or a static shape of the result.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.zero_signs import sign_of_zero_matters
from tfopt.graph.op_registry import output_types

NEUTRAL = {"Add": 0, "AddV2": 0, "Sub": 0, "BiasAdd": 0, "LogicalOr": 0}
NEUTRAL |= {"Mul": 1, "RealDiv": 1, "Div": 1, "Pow": 1, "LogicalAnd": 1}
PATTERN = op(tuple(NEUTRAL), "x", const("neutral"))


def when(match: Match) -> str | None:
    array, node = match.array("neutral"), match.node()
    if array.dtype.kind in "OSU" or not array.size or not bool(np.all(array == NEUTRAL[node.op])):
        return "the constant is not neutral"
    if reason := _inexact(match):
        return reason
    if node.op == "BiasAdd" or None not in (match.shape("root") or (None,)):
        return None
    return enlarges(array, match.shape("x"))


def rewrite(match: Match, make: Maker) -> Tensor:
    array, node = match.array("neutral"), match.node()
    if node.op == "BiasAdd" or enlarges(array, match.shape("x")) is None:
        return match.tensor("x")
    return make.broadcast(match.tensor("x"), match.shape("root") or (), node, T=output_types(node)[0])


def enlarges(array: NDArray[np.generic], shape: tuple[int | None, ...] | None) -> str | None:
    """Return why an elementwise operation with a constant may have a result larger than its input, or None."""
    if array.ndim == 0:
        return None
    if shape is None:
        return "the shape of the input is not known"
    sizes = (1,) * (len(shape) - array.ndim) + array.shape
    same = array.ndim <= len(shape) and all(size in (1, own) for size, own in zip(sizes, shape, strict=True))
    return None if same else "the constant may make the shape larger"


def _inexact(match: Match) -> str | None:
    array, node = match.array("neutral"), match.node()
    if NEUTRAL[node.op] == 1:
        is_complex = array.dtype.kind == "c" and not match.graph.fast_math
        return "the product of a complex infinity and 1 has a NaN" if is_complex else None
    if array.dtype.kind in "iub":
        return None
    real = array.real.astype(np.float64)
    keeps_signs = bool((np.signbit(real) != (node.op == "Sub")).all()) and array.dtype.kind != "c"
    matters = not keeps_signs and sign_of_zero_matters(match.graph, node.name)
    return "x + 0 is 0 if x is -0, and the sign matters" if matters else None


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    after={
        "push_constants_over_trees": "some joined constants are 0 or 1",
        "push_exact_constants": "some joined constants are neutral",
    },
)
