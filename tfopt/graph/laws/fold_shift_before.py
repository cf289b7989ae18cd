"""Move a constant bias per channel from before a linear operation to after it.

    (x + bias) * K = x * K + (bias * K)

    before    x -> AddV2(bias) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(K, VALID) -> BiasAdd(sum of K bias) -> y

With `fold_scale_before` it folds a batch norm before a convolution.

Requires: no padding, whose zeros do not have the bias (a window of 1 has none); bias is one number per channel, or a
single number, and does not make the shape larger.
"""

from tfopt.graph.law import Match, const, op
from tfopt.graph.matching import linear_ops

PATTERN = op(linear_ops.PLAIN, op(("Add", "AddV2", "BiasAdd", "Sub"), "x", const("bias"), role="add"), const("kernel"))


def fold(match: Match) -> linear_ops.Weights | str:
    if linear_ops.input_channels(match) is None:
        return linear_ops.INPUT_REFUSED
    if reason := linear_ops.shift_refusal(match):
        return reason
    bias = linear_ops.vector_before(match, "bias")
    if bias is None:
        return "the bias is not one number per channel"
    after = linear_ops.bias_of(match, bias)
    return linear_ops.range_refusal(match, after) or linear_ops.Weights(None, after)


LAW = linear_ops.folding_law(
    (PATTERN,), fold, rounds=True, after={"fold_scale_before": "a batch norm multiplies first"}
)
