"""Remove a cast to a wider dtype followed by a cast back, and a cast to the same dtype.

    Cast(Cast(x, a to b), b to a) = x    if b represents every value of a

    before    x (float16) -> Cast(float32) -> Cast(float16) -> y
    after     x -> y

Requires: b is wider. A pair that rounds stays: float32 to float16 and back, saturating or truncating casts, and int64
to float64, which represents integers up to 2^53.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Match, op, return_input

PAIR = op("Cast", op("Cast", "x", role="inner"))
ALONE = op("Cast", "x")
LONG = ("int64", "uint64")


def when(match: Match) -> str | None:
    source, target = match.dtype("SrcT"), match.dtype("DstT")
    if not match.has("inner"):
        return None if source == target else "it is the only one, and changes the type"
    first = match.dtype("SrcT", "inner")
    if first != target:
        return f"the pair makes {target} of {first}"
    return None if represents(source, first) else f"{source} does not hold every {first}"


def represents(outer: str, inner: str) -> bool:
    """Return whether a dtype has every value of another one."""
    if inner == "bfloat16":
        return outer in ("bfloat16", "float32", "float64")
    if "bfloat16" in (inner, outer):
        return inner == outer
    if inner in LONG and outer not in LONG:  # which numpy considers safe
        return False
    try:
        return bool(np.can_cast(inner, outer, casting="safe"))
    except TypeError:  # quantized dtypes, which numpy does not have
        return False


LAW = LocalLaw(
    (PAIR, ALONE),
    when,
    return_input,
    requires=("direct edges",),
    after={"drop_training_nodes": "the casts of a pair are neighbours then"},
    follows="cancel_concats",
)
