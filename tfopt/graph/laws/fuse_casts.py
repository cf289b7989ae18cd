"""Cast small integers once instead of twice.

    Cast(Cast(x, a to b), b to c) = Cast(x, a to c)    if a are integers or bools, and b represents every value of a

    before    x (uint8) -> Cast(int32) -> Cast(float32) -> y
    after     x -> Cast(float32) -> y

The value between the casts is that of x, so the result is rounded, or wraps around, as before. `cancel_casts` removes a
pair that ends with the first dtype.

Requires: integers, or bools, in between only in a wider dtype.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, op
from tfopt.graph.laws.cancel_casts import represents

PATTERN = op("Cast", op("Cast", "x", role="inner"))


def when(match: Match) -> str | None:
    """Refuse casts that lose values, and floats: floats out of range become any integer."""
    import tensorflow as tf

    first, between = (tf.as_dtype(match.attr(name, "inner")) for name in ("SrcT", "DstT"))
    if not (first.is_integer or first.is_bool) or between.is_bool:
        return f"{first.name} are no integers"
    if first == tf.as_dtype(match.attr("DstT")):
        return "the first dtype is the last one"
    return None if represents(between.name, first.name) else f"{between.name} does not hold every {first.name}"


def rewrite(match: Match, make: Maker) -> Tensor:
    return make.node("Cast", match.tensor("x"), like=match.node(), SrcT=match.attr("SrcT", "inner"))


LAW = LocalLaw(
    (PATTERN,), when, rewrite, requires=("direct edges",), after={"cancel_casts": "a pair that cancels needs no Cast"}
)
