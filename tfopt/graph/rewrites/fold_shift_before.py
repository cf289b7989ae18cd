"""A constant added per channel before a linear operation is a bias after it.

    (x + c) * K = x * K + (c * K)

    before    x -> AddV2(c) -> Conv2D(K, VALID) -> y
    after     x -> Conv2D(K, VALID) -> BiasAdd(sum of K c) -> y

With `fold_scale_before`, a batch norm before a convolution. Needs: no padding, whose zeros are not shifted (a window of
1 has none); c is one number per channel, or one number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.linear import RANKS, Vector, channel_axis, range_refusal
from tfopt.graph.linear_inputs import INPUT_REFUSED, input_channels, times_inputs, vector_before
from tfopt.graph.pattern import const, op
from tfopt.graph.rule import Maker, Match, Rule
from tfopt.graph.view import Tensor

PATTERN = op(
    ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul"),
    op(("Add", "AddV2", "BiasAdd", "Sub"), "x", const("shift"), role="add"),
    const("kernel"),
)


def when(match: Match) -> str | None:
    """Refuse a padding, and what is not one number per channel."""
    if input_channels(match) is None:
        return INPUT_REFUSED
    window = match.array("kernel").shape[: RANKS.get(match.node().op, 4) - 2]
    if match.node().op != "MatMul" and match.attr("padding") != "VALID" and set(window) != {1}:
        return "the zeros of the padding are not shifted"
    if vector_before(match, "shift") is None:
        return "what is added is not one number per channel"
    return range_refusal(match, _bias(match))


def rewrite(match: Match, make: Maker) -> Tensor:
    """The operation on what was not shifted, and its bias."""
    linear, like = match.node(), match.array("kernel")
    product = make.node(linear.op, match.tensor("x"), match.tensor("kernel"), like=linear)
    bias = make.constant("bias", _bias(match), like)
    layout = "NCHW" if channel_axis(linear) == 1 and linear.op != "MatMul" else "NHWC"
    return make.node("BiasAdd", product, bias, like=linear, data_format=layout)


def _bias(match: Match) -> Vector:
    shift = vector_before(match, "shift")
    assert shift is not None  # `when` saw to it
    moved = times_inputs(match, -shift if match.node("add").op == "Sub" else shift)
    if match.node().op == "MatMul":
        return np.asarray(moved.sum(1 if match.attr("transpose_b") else 0))
    if match.node().op == "DepthwiseConv2dNative":
        return np.asarray(moved.sum((0, 1)).ravel())
    return np.asarray(moved.sum(tuple(range(moved.ndim - 1))))


LAW = Rule((PATTERN,), when, rewrite)
