"""A constant added per channel after a linear operation vanishes into its bias, which it makes where there is none.

    (x * K + b) + c = x * K + (b + c)        c - (x * K + b) = x * (-K) + (c - b)

    before    x -> Conv2D(K) [-> BiasAdd(b)] -> AddV2(c) -> y
    after     x -> Conv2D(K) -> BiasAdd(b + c) -> y

The second half of the batch norm that Keras 3 exports. Needs: c is one number per channel, or one number, and does not
make the shape larger.
"""

import numpy as np

from tfopt.graph.linear_ops import (
    AFFINE,
    LINEAR,
    SHIFTED,
    Vector,
    affine,
    along_channels,
    channels,
    existing_bias,
    range_refusal,
    refusal,
    scaled,
)
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERNS = (
    op(("BiasAdd", "Add", "AddV2", "Sub"), SHIFTED, const("more")),
    op(("Add", "AddV2", "Sub"), LINEAR, const("more")),
    op("Sub", const("more"), AFFINE),
)


def when(match: Match) -> str | None:
    """Refuse what is not one number per channel."""
    if reason := refusal(match):
        return reason
    moved = _moved(match)
    return "what is added is not one number per channel" if moved is None else range_refusal(match, moved)


def rewrite(match: Match, make: Maker) -> Tensor:
    """The linear operation and one bias."""
    sign = -1.0 if _is_reversed(match) else 1.0
    return affine(match, make, scaled(match, np.full(channels(match), sign)), _moved(match))


def _moved(match: Match) -> Vector | None:
    more, before = along_channels(match, match.node(), "more"), existing_bias(match)
    if more is None or before is None:
        return None
    if match.node().op != "Sub":
        return before + more
    return more - before if _is_reversed(match) else before - more


def _is_reversed(match: Match) -> bool:
    return match.node().op == "Sub" and match.node().inputs[0] == match.tensor("more")


LAW = Rule(PATTERNS, when, rewrite)
