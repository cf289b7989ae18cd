"""Fold a batch norm into the kernel of the linear operation after it, and a bias.

    (scale x + bias) * K = x * (scale K) + (bias * K)
        scale = gamma / sqrt(variance + epsilon),  bias = beta - scale mean

    before    x -> FusedBatchNormV3(gamma, beta, mean, variance) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(scale K, VALID) -> BiasAdd(sum of K bias) -> y

The form that Keras 3 exports is folded by two laws: `fold_scale_before` and `fold_shift_before`.

Requires: inference mode; constants; the data format of the operation; no padding, whose zeros are not normalized (a
window of 1 has none, and with a bias of 0 any padding is allowed).

Source: tf.raw_ops.FusedBatchNormV3, tf.raw_ops.BatchNormWithGlobalNormalization.
"""

from tfopt.graph.law import Match, const, op
from tfopt.graph.matching import linear_ops
from tfopt.graph.matching.affine_ops import batch_norm_patterns, batch_norm_refusal, batch_norm_scale_bias

PATTERNS = tuple(op(linear_ops.PLAIN, norm, const("kernel")) for norm in batch_norm_patterns("x", role="norm"))


def fold(match: Match) -> linear_ops.Weights | str:
    if reason := batch_norm_refusal(match, "norm", match.node()):
        return reason
    scale, bias = batch_norm_scale_bias(match, "norm")
    if bias.any() and (reason := linear_ops.shift_refusal(match)):
        return reason
    after = linear_ops.bias_of(match, bias) if bias.any() else None
    weights = linear_ops.Weights(linear_ops.times_inputs(match, scale), after)
    return linear_ops.range_refusal(match, *weights) or weights


LAW = linear_ops.folding_law(
    PATTERNS,
    fold,
    rounds=True,
    changes_zero_signs=True,
    after={"fold_batch_norm": "a batch norm with kernels on both sides goes into the earlier one"},
)
