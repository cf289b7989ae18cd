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

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.affine_ops import batch_norm_patterns, batch_norm_refusal, batch_norm_scale_bias
from tfopt.graph.matching.linear_op_inputs import bias_of, shift_refusal, times_inputs
from tfopt.graph.matching.linear_ops import PLAIN, affine, range_refusal
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PATTERNS = tuple(op(PLAIN, norm, const("kernel")) for norm in batch_norm_patterns("x", role="norm"))


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, a padding, and weights that overflow."""
    if reason := batch_norm_refusal(match, "norm", match.node()):
        return reason
    scale, bias = batch_norm_scale_bias(match, "norm")
    if bias.any() and (reason := shift_refusal(match)):
        return reason
    return range_refusal(match, times_inputs(match, scale), bias_of(match, bias))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return one linear operation with one bias."""
    scale, bias = batch_norm_scale_bias(match, "norm")
    shift = bias_of(match, bias) if bias.any() else None
    return affine(match, make, times_inputs(match, scale), shift, role="root")


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    rounds=True,
    changes_zero_signs=True,
    after={"fold_batch_norm": "a batch norm with kernels on both sides goes into the earlier one"},
)
