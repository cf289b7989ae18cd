"""Fold a constant scale per channel into the kernel of the linear operation after it.

    (scale x) * K = x * (scale K)

    before    x -> Mul(scale) -> Conv2D(K) -> y
    after     x -> Conv2D(scale K) -> y

The zeros of a padding stay zeros, so any padding is allowed. The scale of a channel multiplies the part of the kernel
that reads the channel; in a grouped convolution, only the channel's group does. A division is a product with 1 / scale.

Requires: scale is one number per channel, or a single number, and does not make the shape larger.
"""

from tfopt.graph.law import Match, const, op
from tfopt.graph.matching import linear_ops

SCALED = op(("Mul", "RealDiv"), "x", const("scale"), role="mul")
PATTERNS = (op(linear_ops.PLAIN, SCALED, const("kernel")), op(linear_ops.TRANSPOSED, "sizes", const("kernel"), SCALED))


def fold(match: Match) -> linear_ops.Weights | str:
    if linear_ops.input_channels(match) is None:
        return linear_ops.INPUT_REFUSED
    scale = linear_ops.vector_before(match, "scale")
    if scale is None:
        return "the scale is not one number per channel"
    kernel = linear_ops.times_inputs(match, scale)
    return linear_ops.range_refusal(match, kernel) or linear_ops.Weights(kernel)


LAW = linear_ops.folding_law(PATTERNS, fold, rounds=True, changes_zero_signs=True, follows="push_before_concat")
