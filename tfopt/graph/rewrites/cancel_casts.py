"""A cast to a type that holds every value, and back, changes nothing; neither does a cast to the same type.

    Cast(Cast(x, a to b), b to a) = x    where every value of a is one of b

    before    x (float16) -> Cast(float32) -> Cast(float16) -> y
    after     x -> y

Needs: b is wider. float32 to float16 and back rounds, and stays; so does a cast that saturates or truncates, and int64
to float64, which holds whole numbers up to 2^53.
"""

import numpy as np

from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PAIR = op("Cast", op("Cast", "x", role="inner"))
ALONE = op("Cast", "x")
LONG = ("int64", "uint64")


def when(match: Match) -> str | None:
    """Refuse what loses values on the way."""
    import tensorflow as tf

    source, target = (tf.as_dtype(match.attr(name)) for name in ("SrcT", "DstT"))
    if not match.has("inner"):
        return None if source == target else "it is the only one, and changes the type"
    first = tf.as_dtype(match.attr("SrcT", "inner"))
    if first != target:
        return f"the pair makes {target.name} of {first.name}"
    return None if _holds(first.name, source.name) else f"{source.name} does not hold every {first.name}"


def rewrite(match: Match, make: Maker) -> Tensor:
    """What is cast."""
    return match.tensor("x")


def _holds(inner: str, outer: str) -> bool:
    if inner == "bfloat16":
        return outer in ("bfloat16", "float32", "float64")
    if "bfloat16" in (inner, outer):
        return inner == outer
    if inner in LONG and outer not in LONG:  # numpy calls float64 safe for them
        return False
    try:
        return bool(np.can_cast(inner, outer, casting="safe"))
    except TypeError:  # quantized types, which numpy does not know
        return False


LAW = Rule((PAIR, ALONE), when, rewrite, requires=("direct edges",))
