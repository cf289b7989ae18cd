"""Move a constant bias per channel from before a linear operation to after it.

    (x + bias) * K = x * K + (bias * K)

    before    x -> AddV2(bias) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(K, VALID) -> BiasAdd(sum of K bias) -> y

With `fold_scale_before` it folds a batch norm before a convolution.

Requires: no padding, whose zeros do not have the bias (a window of 1 has none); bias is one number per channel, or a
single number, and does not make the shape larger.
"""

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.linear_op_inputs import INPUT_REFUSED, bias_of, input_channels, shift_refusal, vector_before
from tfopt.graph.matching.linear_ops import PLAIN, Vector, add_bias, range_refusal
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PATTERN = op(
    PLAIN,
    op(("Add", "AddV2", "BiasAdd", "Sub"), "x", const("bias"), role="add"),
    const("kernel"),
)


def when(match: Match) -> str | None:
    """Refuse padding, and a bias that is not one number per channel."""
    if input_channels(match) is None:
        return INPUT_REFUSED
    if reason := shift_refusal(match):
        return reason
    if vector_before(match, "bias") is None:
        return "the bias is not one number per channel"
    return range_refusal(match, _bias_after(match))


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return the operation with a bias after it."""
    product = make.node(match.node().op, match.tensor("x"), match.tensor("kernel"), like=match.node())
    return add_bias(make, match.node(), product, _bias_after(match), match.array("kernel"))


def _bias_after(match: Match) -> Vector:
    bias = vector_before(match, "bias")
    assert bias is not None  # checked by `when`
    return bias_of(match, bias)


LAW = LocalLaw((PATTERN,), when, rewrite, rounds=True, after={"fold_scale_before": "a batch norm multiplies first"})
