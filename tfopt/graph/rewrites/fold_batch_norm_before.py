"""A batch norm right before a linear operation vanishes into its kernel and a bias.

    (s x + t) * K = x * (s K) + (t * K),    s = gamma / sqrt(variance + epsilon),  t = beta - s mean

    before    x -> FusedBatchNormV3(gamma, beta, mean, variance) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(s K, VALID) -> BiasAdd(sum of K t) -> y

The form that Keras 3 exports is two laws: `fold_scale_before` and `fold_shift_before`. Needs: inference mode;
constants; the layout of the operation; no padding, whose zeros are not normalized (a window of 1 has none, and where
all t are 0 any will do).

Reference: tf.raw_ops.FusedBatchNormV3, tf.raw_ops.BatchNormWithGlobalNormalization.
"""

from tfopt.graph.affine_ops import batch_norm_axis, batch_norm_patterns, batch_norm_scale_bias
from tfopt.graph.linear_op_inputs import bias_of, shift_refusal, times_inputs
from tfopt.graph.linear_ops import PLAIN, RANKS, add_bias, channel_axis, range_refusal
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERNS = tuple(op(PLAIN, norm, const("kernel")) for norm in batch_norm_patterns("x", role="norm"))


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, a padding, and weights that overflow."""
    if match.attr("is_training", "norm"):
        return "the batch norm is in training mode"
    own, axis = batch_norm_axis(match.node("norm"), RANKS.get(match.node().op, 4)), channel_axis(match.node())
    if own != axis:
        return f"the batch norm normalizes axis {own}, the channels of the {match.node().op} are axis {axis}"
    scale, moved = batch_norm_scale_bias(match, "norm")
    if moved.any() and (reason := shift_refusal(match)):
        return reason
    return range_refusal(match, times_inputs(match, scale), bias_of(match, moved))


def rewrite(match: Match, make: Maker) -> Tensor:
    """One linear operation and one bias."""
    scale, moved = batch_norm_scale_bias(match, "norm")
    kernel = make.constant("kernel", times_inputs(match, scale), match.array("kernel"))
    product = make.node(match.node().op, match.tensor("x"), kernel, like=match.node())
    return (
        add_bias(make, match.node(), product, bias_of(match, moved), match.array("kernel")) if moved.any() else product
    )


LAW = Rule(PATTERNS, when, rewrite)
