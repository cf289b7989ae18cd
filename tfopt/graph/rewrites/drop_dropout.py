"""A dropout that drops nothing equals its input.

    select(u >= 0, x, 0) = x * cast(u >= 0) = x * floor(u + 1) = x    for u between 0 and 1

    before    RandomUniform -> GreaterEqual(0) -> SelectV2(x, 0) -> y
    after     x -> y

The forms that TensorFlow 2, 1.14 and 1.0 wrote, as they are left when a rate, a keep_prob or a learning phase has
become a constant. Needs: a rate of 0 (a dropout that does drop is part of the function, and is named), numbers drawn
from 0 to 1, and that these are as many as x, by a static shape or because their shape is that of x.
"""

import numpy as np

from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

RANDOM = ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2")
MASK = op("GreaterEqual", "random", const("rate"), role="mask")
PATTERNS = (
    op(("SelectV2", "Select"), MASK, "x", "zero"),
    op("Mul", "x", op("Cast", MASK, role="cast")),
    op("Mul", "x", op("Floor", op(("Add", "AddV2"), const("keep"), "random", role="sum"), role="mask")),
)


def when(match: Match) -> str | None:
    """Refuse what drops something, and what may make the shape larger."""
    drawn = match.graph.nodes[match.tensor("random").node]
    if drawn.op not in RANDOM:
        return "what is compared are no random numbers from 0 to 1"
    rates = np.asarray(1 - match.array("keep") if match.has("keep") else match.array("rate")).astype(np.float64)
    if (rates > 0).any() or (match.has("keep") and rates.any()):
        return f"it drops {rates.max():.0%} at random: export the model for inference"
    shape, size = match.shape("x"), match.graph.nodes[drawn.inputs[0].node]
    known = shape is not None and None not in shape and shape == match.shape("root")
    same = size.op == "Shape" and size.inputs[0] == match.tensor("x")
    return None if known or (same and rates.ndim == 0) else "the mask may make the shape larger"


def rewrite(match: Match, make: Maker) -> Tensor:
    """What would have been dropped."""
    return match.tensor("x")


LAW = Rule(PATTERNS, when, rewrite)
