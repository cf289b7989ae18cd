"""Fold a constant bias per channel into the bias of the linear operation before it; add one if it has none.

    (x * K + b) + bias = x * K + (b + bias)        bias - (x * K + b) = x * (-K) + (bias - b)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> AddV2(bias) -> y
    after     x -> Conv2D(K) -> BiasAdd(b + bias) -> y

It folds the second half of the batch norm that Keras 3 exports.

Requires: bias is one number per channel, or a single number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.law import Match
from tfopt.graph.matching.linear_ops import (
    AFFINE,
    LINEAR,
    WITH_BIAS,
    Weights,
    along_channels,
    channels,
    existing_bias,
    folding_law,
    range_refusal,
    scaled,
)
from tfopt.graph.matching.pattern import const, op

PATTERNS = (
    op(("BiasAdd", "Add", "AddV2", "Sub"), WITH_BIAS, const("bias")),
    op(("Add", "AddV2", "Sub"), LINEAR, const("bias")),
    op("Sub", const("bias"), AFFINE),
)


def fold(match: Match) -> Weights | str:
    bias, before = along_channels(match, match.node(), "bias"), existing_bias(match)
    if isinstance(before, str):
        return before
    if bias is None:
        return "the bias is not one number per channel"
    is_reversed = match.node().op == "Sub" and match.node().inputs[0] == match.tensor("bias")
    combined = -bias - before if is_reversed else before + bias
    kernel = scaled(match, np.full(channels(match), -1.0 if is_reversed else 1.0))
    return range_refusal(match, combined) or Weights(kernel, combined)


LAW = folding_law(
    PATTERNS,
    fold,
    rounds=True,
    after={"fold_scale": "a batch norm multiplies first, and the bias in between must follow"},
)
