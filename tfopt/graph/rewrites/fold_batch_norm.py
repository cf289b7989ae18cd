"""A batch norm right after an operation that is linear in each channel vanishes into its kernel and bias.

    bn(x * K + b) = x * (s K) + (s (b - mean) + beta),    s = gamma / sqrt(variance + epsilon)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> FusedBatchNormV3(gamma, beta, mean, variance) -> y
    after     x -> Conv2D(s K) -> BiasAdd(s (b - mean) + beta) -> y

Two affine maps in a row are one. It holds for any padding, stride, dilation and number of groups. Needs: inference
mode; constants; the batch norm's layout is that of the operation. The decomposed form that Keras 3 exports is two laws:
`fold_scale` and `fold_shift`.

Reference: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018, section 3.2; tf.raw_ops.FusedBatchNormV3, tf.raw_ops.BatchNormWithGlobalNormalization.
"""

from tfopt.graph.affine_ops import batch_norm_axis, batch_norm_patterns, batch_norm_scale_bias
from tfopt.graph.linear_ops import (
    AFFINE,
    RANKS,
    Vector,
    affine,
    channel_axis,
    existing_bias,
    range_refusal,
    refusal,
    scaled,
)
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.rewrite_rule import Maker, Match, Rule


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, and weights that overflow."""
    if match.attr("is_training"):
        return "the batch norm is in training mode"
    if reason := refusal(match):
        return reason
    linear = match.node("linear")
    own = batch_norm_axis(match.node(), RANKS.get(linear.op, 4))
    if own != channel_axis(linear):
        return f"the batch norm normalizes axis {own}, the channels of the {linear.op} are axis {channel_axis(linear)}"
    scale, moved = _line(match)
    return range_refusal(match, scaled(match, scale), moved)


def rewrite(match: Match, make: Maker) -> Tensor:
    """One linear operation and one bias."""
    scale, moved = _line(match)
    return affine(match, make, scaled(match, scale), moved)


def _line(match: Match) -> tuple[Vector, Vector]:
    scale, moved = batch_norm_scale_bias(match)
    before = existing_bias(match)
    return scale, moved if before is None else scale * before + moved


LAW = Rule(batch_norm_patterns(AFFINE), when, rewrite)
