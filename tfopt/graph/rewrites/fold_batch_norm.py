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

import numpy as np

from tfopt.graph.linear import AFFINE, RANKS, Vector, affine, channel_axis, range_refusal, refusal, scaled, shift
from tfopt.graph.pattern import const, op
from tfopt.graph.rule import Maker, Match, Rule
from tfopt.graph.view import Tensor

FUSED = op(
    ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
    AFFINE,
    const("gamma"),
    const("beta"),
    const("mean"),
    const("variance"),
)
GLOBAL = op("BatchNormWithGlobalNormalization", AFFINE, const("mean"), const("variance"), const("beta"), const("gamma"))


def when(match: Match) -> str | None:
    """Refuse training mode, another layout, and weights that overflow."""
    if match.attr("is_training"):
        return "the batch norm is in training mode"
    if reason := refusal(match):
        return reason
    linear = match.node("linear")
    rank = RANKS.get(linear.op, 4)
    own = 1 if (match.attr("data_format") or "NHWC").startswith("NC") else rank - 1
    if own != channel_axis(linear):
        return f"the batch norm normalizes axis {own}, the channels of the {linear.op} are axis {channel_axis(linear)}"
    scale, moved = _line(match)
    return range_refusal(match, scaled(match, scale), moved)


def rewrite(match: Match, make: Maker) -> Tensor:
    """One linear operation and one bias."""
    scale, moved = _line(match)
    return affine(match, make, scaled(match, scale), moved)


def _line(match: Match) -> tuple[Vector, Vector]:
    gamma, beta, mean, variance = (
        match.array(role).astype(np.float64) for role in ("gamma", "beta", "mean", "variance")
    )
    old = match.node().op == "BatchNormWithGlobalNormalization"
    if old and not match.attr("scale_after_normalization"):
        gamma = np.ones_like(gamma)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = gamma / np.sqrt(variance + match.attr("variance_epsilon" if old else "epsilon"))
    before = shift(match)
    return scale, scale * ((0.0 if before is None else before) - mean) + beta


LAW = Rule((FUSED, GLOBAL), when, rewrite)
