"""Fold a constant scale per channel into the kernel of the linear operation before it.

    scale (x * K + b) = x * (scale K) + scale b

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> Mul(scale) -> y
    after     x -> Conv2D(scale K) [-> BiasAdd(scale b)] -> y

It folds the first half of the batch norm that Keras 3 exports. A division is a product with 1 / scale.

Requires: scale is one number per channel, or a single number, and does not make the shape larger.
"""

from tfopt.graph.law import Match
from tfopt.graph.matching.linear_ops import (
    AFFINE,
    Weights,
    along_channels,
    existing_bias,
    folding_law,
    range_refusal,
    scaled,
)
from tfopt.graph.matching.pattern import const, op

PATTERN = op(("Mul", "RealDiv"), AFFINE, const("scale"))


def fold(match: Match) -> Weights | str:
    bias, scale = existing_bias(match), along_channels(match, match.node(), "scale")
    if isinstance(bias, str):
        return bias
    if scale is None:
        return "the scale is not one number per channel"
    weights = Weights(scaled(match, scale), scale * bias if match.has("add") else None)
    return range_refusal(match, *weights) or weights


LAW = folding_law((PATTERN,), fold, rounds=True, changes_zero_signs=True, follows="fold_batch_norm_before")
