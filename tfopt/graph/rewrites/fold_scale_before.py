"""A constant factor per channel before a linear operation vanishes into its kernel.

    (c x) * K = x * (c K)

    before    x -> Mul(c) -> Conv2D(K) -> y
    after     x -> Conv2D(c K) -> y

The zeros of a padding stay zeros under a factor, so that any padding will do. Here the number of a channel multiplies
the part of the kernel that reads the channel; in a grouped convolution only the channel's own group does. Needs: c is
one number per channel, or one number, and does not make the shape larger.
"""

from tfopt.graph.linear import range_refusal
from tfopt.graph.linear_inputs import INPUT_REFUSED, input_channels, times_inputs, vector_before
from tfopt.graph.pattern import const, op
from tfopt.graph.rule import Maker, Match, Rule
from tfopt.graph.view import Tensor

PATTERN = op(
    ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul"),
    op("Mul", "x", const("scale"), role="mul"),
    const("kernel"),
)


def when(match: Match) -> str | None:
    """Refuse a factor that is not one number per channel."""
    if input_channels(match) is None:
        return INPUT_REFUSED
    scale = vector_before(match, "scale")
    if scale is None:
        return "the factor is not one number per channel"
    return range_refusal(match, times_inputs(match, scale))


def rewrite(match: Match, make: Maker) -> Tensor:
    """The same operation with another kernel."""
    scale = vector_before(match, "scale")
    assert scale is not None  # `when` saw to it
    kernel = make.constant("kernel", times_inputs(match, scale), match.array("kernel"))
    return make.node(match.node().op, match.tensor("x"), kernel, like=match.node())


LAW = Rule((PATTERN,), when, rewrite)
