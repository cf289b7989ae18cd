"""Fold a constant bias per channel into the bias of the linear operation before it; add one if it has none.

    (x * K + b) + bias = x * K + (b + bias)        bias - (x * K + b) = x * (-K) + (bias - b)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> AddV2(bias) -> y
    after     x -> Conv2D(K) -> BiasAdd(b + bias) -> y

It folds the second half of the batch norm that Keras 3 exports.

Requires: bias is one number per channel, or a single number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.law import Match, const, op
from tfopt.graph.matching import linear_ops

PATTERNS = (
    op(("BiasAdd", "Add", "AddV2", "Sub"), linear_ops.WITH_BIAS, const("bias")),
    op(("Add", "AddV2", "Sub"), linear_ops.LINEAR, const("bias")),
    op("Sub", const("bias"), linear_ops.AFFINE),
)


def fold(match: Match) -> linear_ops.Weights | str:
    bias, before = linear_ops.along_channels(match, match.node(), "bias"), linear_ops.existing_bias(match)
    if isinstance(before, str):
        return before
    if bias is None:
        return "the bias is not one number per channel"
    is_reversed = match.node().op == "Sub" and match.node().inputs[0] == match.tensor("bias")
    combined = -bias - before if is_reversed else before + bias
    kernel = linear_ops.scaled(match, np.full(linear_ops.channels(match), -1.0 if is_reversed else 1.0))
    return linear_ops.range_refusal(match, combined) or linear_ops.Weights(kernel, combined)


LAW = linear_ops.folding_law(
    PATTERNS,
    fold,
    rounds=True,
    after={"fold_scale": "a batch norm multiplies first, and the bias in between must follow"},
)
