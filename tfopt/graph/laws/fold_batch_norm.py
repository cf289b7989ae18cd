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

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.affine_ops import batch_norm_patterns, batch_norm_refusal, batch_norm_scale_bias
from tfopt.graph.matching.linear_ops import (
    AFFINE,
    Vector,
    affine,
    existing_bias,
    range_refusal,
    refusal,
    scaled,
)
from tfopt.graph.mutable_graph import Tensor


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, and weights that overflow."""
    if reason := refusal(match) or batch_norm_refusal(match, "root", match.node("linear")):
        return reason
    scale, bias = _combined_affine(match)
    return range_refusal(match, scaled(match, scale), bias)


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return one linear operation with one bias."""
    scale, bias = _combined_affine(match)
    return affine(match, make, scaled(match, scale), bias)


def _combined_affine(match: Match) -> tuple[Vector, Vector]:
    scale, bias = batch_norm_scale_bias(match)
    before = existing_bias(match)
    return scale, bias if before is None else scale * before + bias


LAW = LocalLaw(
    batch_norm_patterns(AFFINE),
    when,
    rewrite,
    rounds=True,
    changes_zero_signs=True,
    after={"fold_shift_before": "that law makes a bias, which is folded, too"},
    before={
        "fold_scale": "a whole batch norm is folded at once",
        "fold_shift": "a whole batch norm is folded at once",
    },
)
