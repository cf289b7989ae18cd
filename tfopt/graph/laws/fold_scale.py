"""Fold a constant scale per channel into the kernel of the linear operation before it.

    scale (x * K + b) = x * (scale K) + scale b

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> Mul(scale) -> y
    after     x -> Conv2D(scale K) [-> BiasAdd(scale b)] -> y

It folds the first half of the batch norm that Keras 3 exports. A division is a product with 1 / scale.

Requires: scale is one number per channel, or a single number, and does not make the shape larger.
"""

from tfopt.graph.law import Match, const, op
from tfopt.graph.matching import linear_ops

PATTERN = op(("Mul", "RealDiv"), linear_ops.AFFINE, const("scale"))


def fold(match: Match) -> linear_ops.Weights | str:
    bias, scale = linear_ops.existing_bias(match), linear_ops.along_channels(match, match.node(), "scale")
    if isinstance(bias, str):
        return bias
    if scale is None:
        return "the scale is not one number per channel"
    weights = linear_ops.Weights(linear_ops.scaled(match, scale), scale * bias if match.has("add") else None)
    return linear_ops.range_refusal(match, *weights) or weights


LAW = linear_ops.folding_law((PATTERN,), fold, rounds=True, changes_zero_signs=True, follows="fold_batch_norm_before")
