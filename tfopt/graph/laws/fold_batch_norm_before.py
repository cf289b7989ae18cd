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
from tfopt.graph.matching.affine_ops import batch_norm_axis, batch_norm_patterns, batch_norm_scale_bias
from tfopt.graph.matching.linear_op_inputs import bias_of, shift_refusal, times_inputs
from tfopt.graph.matching.linear_ops import PLAIN, RANKS, add_bias, channel_axis, range_refusal
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PATTERNS = tuple(op(PLAIN, norm, const("kernel")) for norm in batch_norm_patterns("x", role="norm"))


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, a padding, and weights that overflow."""
    if match.attr("is_training", "norm"):
        return "the batch norm is in training mode"
    norm_axis, axis = batch_norm_axis(match.node("norm"), RANKS.get(match.node().op, 4)), channel_axis(match.node())
    if norm_axis != axis:
        return f"the batch norm normalizes axis {norm_axis}, the channels of the {match.node().op} are axis {axis}"
    scale, bias = batch_norm_scale_bias(match, "norm")
    if bias.any() and (reason := shift_refusal(match)):
        return reason
    return range_refusal(match, times_inputs(match, scale), bias_of(match, bias))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return one linear operation with one bias."""
    scale, bias = batch_norm_scale_bias(match, "norm")
    kernel = make.constant("kernel", times_inputs(match, scale), match.array("kernel"))
    product = make.node(match.node().op, match.tensor("x"), kernel, like=match.node())
    return add_bias(make, match.node(), product, bias_of(match, bias), match.array("kernel")) if bias.any() else product


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    rounds=True,
    changes_zero_signs=True,
    after={"fold_batch_norm": "a batch norm with kernels on both sides goes into the earlier one"},
)
