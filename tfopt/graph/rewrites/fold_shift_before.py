"""A constant added per channel before a linear operation is a bias after it.

    (x + c) * K = x * K + (c * K)

    before    x -> AddV2(c) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(K, VALID) -> BiasAdd(sum of K c) -> y

With `fold_scale_before`, a batch norm before a convolution. Needs: no padding, whose zeros are not shifted (a window of
1 has none); c is one number per channel, or one number, and does not make the shape larger.
"""

from tfopt.graph.linear_op_inputs import INPUT_REFUSED, bias_of, input_channels, shift_refusal, vector_before
from tfopt.graph.linear_ops import PLAIN, Vector, add_bias, range_refusal
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERN = op(
    PLAIN,
    op(("Add", "AddV2", "BiasAdd", "Sub"), "x", const("shift"), role="add"),
    const("kernel"),
)


def when(match: Match) -> str | None:
    """Refuse a padding, and what is not one number per channel."""
    if input_channels(match) is None:
        return INPUT_REFUSED
    if reason := shift_refusal(match):
        return reason
    if vector_before(match, "shift") is None:
        return "what is added is not one number per channel"
    return range_refusal(match, _bias(match))


def rewrite(match: Match, make: Maker) -> Tensor:
    """The operation on what was not shifted, and its bias."""
    product = make.node(match.node().op, match.tensor("x"), match.tensor("kernel"), like=match.node())
    return add_bias(make, match.node(), product, _bias(match), match.array("kernel"))


def _bias(match: Match) -> Vector:
    shift = vector_before(match, "shift")
    assert shift is not None  # `when` saw to it
    return bias_of(match, -shift if match.node("add").op == "Sub" else shift)


LAW = Rule((PATTERN,), when, rewrite)
