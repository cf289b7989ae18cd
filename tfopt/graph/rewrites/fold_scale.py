"""A constant factor per channel after a linear operation vanishes into its kernel.

    c (x * K + b) = x * (c K) + c b

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> Mul(c) -> y
    after     x -> Conv2D(c K) [-> BiasAdd(c b)] -> y

The first half of the batch norm that Keras 3 exports. A division is a product with 1/c. Needs: c is one number per
channel, or one number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.linear_ops import AFFINE, Vector, affine, along_channels, existing_bias, range_refusal, refusal, scaled
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERN = op(("Mul", "RealDiv"), AFFINE, const("scale"))


def when(match: Match) -> str | None:
    """Refuse a factor that is not one number per channel."""
    if reason := refusal(match):
        return reason
    scale = _scale(match)
    if scale is None:
        return "the factor is not one number per channel"
    return range_refusal(match, scaled(match, scale), *_moved(match, scale))


def rewrite(match: Match, make: Maker) -> Tensor:
    """The same operations with other constants."""
    scale = _scale(match)
    assert scale is not None  # `when` saw to it
    return affine(match, make, scaled(match, scale), next(iter(_moved(match, scale)), None))


def _scale(match: Match) -> Vector | None:
    found = along_channels(match, match.node(), "scale")
    with np.errstate(divide="ignore"):
        return 1 / found if found is not None and match.node().op == "RealDiv" else found


def _moved(match: Match, scale: Vector) -> list[Vector]:
    before = existing_bias(match)
    return [scale * before] if match.has("add") and before is not None else []


LAW = Rule((PATTERN,), when, rewrite)
