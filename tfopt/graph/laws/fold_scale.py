"""Fold a constant scale per channel into the kernel of the linear operation before it.

    scale (x * K + b) = x * (scale K) + scale b

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> Mul(scale) -> y
    after     x -> Conv2D(scale K) [-> BiasAdd(scale b)] -> y

It folds the first half of the batch norm that Keras 3 exports. A division is a product with 1 / scale.

Requires: scale is one number per channel, or a single number, and does not make the shape larger.
"""

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.linear_ops import (
    AFFINE,
    Vector,
    affine,
    along_channels,
    existing_bias,
    range_refusal,
    refusal,
    scaled,
)
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PATTERN = op(("Mul", "RealDiv"), AFFINE, const("scale"))


def when(match: Match) -> str | None:
    """Refuse a scale that is not one number per channel."""
    if reason := refusal(match):
        return reason
    scale = along_channels(match, match.node(), "scale")
    if scale is None:
        return "the scale is not one number per channel"
    return range_refusal(match, scaled(match, scale), *_scaled_bias(match, scale))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return the linear operation with other constants."""
    scale = along_channels(match, match.node(), "scale")
    assert scale is not None  # checked by `when`
    return affine(match, make, scaled(match, scale), next(iter(_scaled_bias(match, scale)), None))


def _scaled_bias(match: Match, scale: Vector) -> list[Vector]:
    bias = existing_bias(match)
    return [scale * bias] if match.has("add") and bias is not None else []


LAW = LocalLaw((PATTERN,), when, rewrite, rounds=True, changes_zero_signs=True, follows="fold_batch_norm_before")
