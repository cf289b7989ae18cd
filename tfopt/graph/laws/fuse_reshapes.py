"""Merge two Reshapes into the last one, and remove a Reshape to the same shape.

    Reshape(Reshape(x, s), t) = Reshape(x, t),    = x if x has that shape

    before    x -> Reshape(-1, 4) -> Reshape(2, 2, -1) -> y
    after     x -> Reshape(2, 2, -1) -> y

It holds for any shapes, constant or not: a Reshape preserves the order of the elements, and so do Squeeze and
ExpandDims, which may be in place of the first one.

Requires, to remove the last one: equal static shapes with at most one unknown size, which the number of elements
determines.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, op

PAIR = op("Reshape", op(("Reshape", "ExpandDims"), "x", "between", role="inner"), "shape")
SQUEEZED = op("Reshape", op("Squeeze", "x", role="inner"), "shape")
ALONE = op("Reshape", "x", "shape")


def when(match: Match) -> str | None:
    return None if match.has("inner") or _is_same(match) else "it is the only one, and may change the shape"


def rewrite(match: Match, make: Maker) -> Tensor:
    if _is_same(match):
        return match.tensor("x")
    return make.node("Reshape", match.tensor("x"), match.tensor("shape"), like=match.node())


def _is_same(match: Match) -> bool:
    before, after = match.shape("x"), match.shape("root")
    return before is not None and before == after and before.count(None) <= 1 and 0 not in before


LAW = LocalLaw(
    (PAIR, SQUEEZED, ALONE),
    when,
    rewrite,
    requires=("direct edges",),
    after={"cancel_squeezes": "a pair that cancels needs no Reshape"},
)
