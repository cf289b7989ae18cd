"""Fold a batch norm into the kernel and bias of the linear operation before it.

    bn(x * K + b) = x * (scale K) + (scale (b - mean) + beta),    scale = gamma / sqrt(variance + epsilon)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> FusedBatchNormV3(gamma, beta, mean, variance) -> y
    after     x -> Conv2D(scale K) -> BiasAdd(scale (b - mean) + beta) -> y

The composition of two affine functions is affine. It holds for any padding, stride, dilation and number of groups. The
decomposed form that Keras 3 exports is folded by two laws: `fold_scale` and `fold_shift`.

Requires: inference mode; constants; the batch norm has the data format of the operation.

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018, section 3.2; tf.raw_ops.FusedBatchNormV3, tf.raw_ops.BatchNormWithGlobalNormalization.
"""

from tfopt.graph.law import Match
from tfopt.graph.matching.affine_ops import batch_norm_patterns, batch_norm_refusal, batch_norm_scale_bias
from tfopt.graph.matching.linear_ops import AFFINE, Weights, existing_bias, folding_law, range_refusal, scaled


def fold(match: Match) -> Weights | str:
    before = existing_bias(match)
    if isinstance(before, str):
        return before
    if reason := batch_norm_refusal(match, "root", match.node("linear")):
        return reason
    scale, bias = batch_norm_scale_bias(match)
    weights = Weights(scaled(match, scale), scale * before + bias)
    return range_refusal(match, *weights) or weights


LAW = folding_law(
    batch_norm_patterns(AFFINE),
    fold,
    rounds=True,
    changes_zero_signs=True,
    after={"fold_shift_before": "that law makes a bias, which is folded, too"},
    before={"fold_scale": "a whole batch norm is folded at once", "fold_shift": "a whole batch norm is folded at once"},
)
