"""A constant factor per channel before a linear operation vanishes into its kernel.

    (c x) * K = x * (c K)

    before    x -> Mul(c) -> Conv2D(K) -> y
    after     x -> Conv2D(c K) -> y

The zeros of a padding stay zeros under a factor, so that any padding will do. Here the number of a channel multiplies
the part of the kernel that reads the channel; in a grouped convolution only the channel's own group does. A division is
a product with 1/c. Needs: c is one number per channel, or one number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.linear_op_inputs import INPUT_REFUSED, input_channels, times_inputs, vector_before
from tfopt.graph.linear_ops import PLAIN, TRANSPOSED, Vector, range_refusal
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

SCALED = op(("Mul", "RealDiv"), "x", const("scale"), role="mul")
PATTERNS = (op(PLAIN, SCALED, const("kernel")), op(TRANSPOSED, "sizes", const("kernel"), SCALED))


def when(match: Match) -> str | None:
    """Refuse a factor that is not one number per channel."""
    if input_channels(match) is None:
        return INPUT_REFUSED
    scale = _scale(match)
    if scale is None:
        return "the factor is not one number per channel"
    return range_refusal(match, times_inputs(match, scale))


def rewrite(match: Match, make: Maker) -> Tensor:
    """The same operation with another kernel."""
    scale = _scale(match)
    assert scale is not None  # `when` saw to it
    kernel = make.constant("kernel", times_inputs(match, scale), match.array("kernel"))
    sizes = [match.tensor("sizes")] if match.has("sizes") else []
    inputs = [*sizes, kernel, match.tensor("x")] if sizes else [match.tensor("x"), kernel]
    return make.node(match.node().op, *inputs, like=match.node())


def _scale(match: Match) -> Vector | None:
    found = vector_before(match, "scale")
    with np.errstate(divide="ignore"):
        return 1 / found if found is not None and match.node("mul").op == "RealDiv" else found


LAW = Rule(PATTERNS, when, rewrite)
