"""Fold a constant bias per channel into the bias of the linear operation before it; add one if it has none.

    (x * K + b) + bias = x * K + (b + bias)        bias - (x * K + b) = x * (-K) + (bias - b)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> AddV2(bias) -> y
    after     x -> Conv2D(K) -> BiasAdd(b + bias) -> y

It folds the second half of the batch norm that Keras 3 exports.

Requires: bias is one number per channel, or a single number, and does not make the shape larger.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.linear_ops import (
    AFFINE,
    LINEAR,
    WITH_BIAS,
    Vector,
    affine,
    along_channels,
    channels,
    existing_bias,
    range_refusal,
    refusal,
    scaled,
)
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PATTERNS = (
    op(("BiasAdd", "Add", "AddV2", "Sub"), WITH_BIAS, const("bias")),
    op(("Add", "AddV2", "Sub"), LINEAR, const("bias")),
    op("Sub", const("bias"), AFFINE),
)


def when(match: Match) -> str | None:
    """Refuse a bias that is not one number per channel."""
    if reason := refusal(match):
        return reason
    bias = _combined_bias(match)
    return "the bias is not one number per channel" if bias is None else range_refusal(match, bias)


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return the linear operation with one bias."""
    sign = -1.0 if _is_reversed(match) else 1.0
    return affine(match, make, scaled(match, np.full(channels(match), sign)), _combined_bias(match))


def _combined_bias(match: Match) -> Vector | None:
    bias, before = along_channels(match, match.node(), "bias"), existing_bias(match)
    if bias is None or before is None:
        return None
    return -bias - before if _is_reversed(match) else before + bias


def _is_reversed(match: Match) -> bool:
    return match.node().op == "Sub" and match.node().inputs[0] == match.tensor("bias")


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    rounds=True,
    after={"fold_scale": "a batch norm multiplies first, and the bias in between must follow"},
)
