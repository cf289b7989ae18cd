"""Remove a dropout with a rate of 0.

    select(u >= 0, x, 0) = x * cast(u >= 0) = x * floor(u + 1) = x    for u between 0 and 1

    before    RandomUniform -> GreaterEqual(0) -> SelectV2(x, 0) -> y
    after     x -> y

It matches the forms that TensorFlow 2, 1.14 and 1.0 wrote, after a rate, a keep_prob or a learning phase has become a
constant.

Requires: a rate of 0 (any other dropout is part of the function, and is reported); random numbers from 0 to 1; a mask
with the shape of x, by static shapes or because it is drawn with the shape of x.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Match, const, op, return_input

RANDOM = ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2")
MASK = op("GreaterEqual", "random", const("rate"), role="mask")
PATTERNS = (
    op(("SelectV2", "Select"), MASK, "x", "zero"),
    op("Mul", "x", op("Cast", MASK, role="cast")),
    op("Mul", "x", op("Floor", op(("Add", "AddV2"), const("keep"), "random", role="sum"), role="mask")),
)


def when(match: Match) -> str | None:
    random = match.graph.nodes[match.tensor("random").node]
    if random.op not in RANDOM:
        return "the compared values are no random numbers from 0 to 1"
    rates = np.asarray(1 - match.array("keep") if match.has("keep") else match.array("rate")).astype(np.float64)
    if (rates > 0).any() or (match.has("keep") and rates.any()):
        return f"it drops {rates.max():.0%} at random: export the model for inference"
    shape, size = match.shape("x"), match.graph.nodes[random.inputs[0].node]
    same_static = shape is not None and None not in shape and shape == match.shape("root")
    same_dynamic = size.op == "Shape" and size.inputs[0] == match.tensor("x")
    return None if same_static or (same_dynamic and rates.ndim == 0) else "the mask may make the shape larger"


LAW = LocalLaw(
    PATTERNS,
    when,
    return_input,
    after={
        "fold_constants": "the rate is a constant then",
        "fold_branches": "a dropout of the chosen branch is in the graph then",
    },
    follows="drop_idle_loops",
)
