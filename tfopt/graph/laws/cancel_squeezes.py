"""Remove an ExpandDims and a Squeeze of the same axis, in either order.

    Squeeze(ExpandDims(x, a), a) = ExpandDims(Squeeze(x, a), a) = x

    before    x -> Squeeze(1) -> ExpandDims(1) -> Conv2D
    after     x -> Conv2D

Such pairs are between two one-dimensional convolutions. It holds for unknown shapes too.

Requires: both have the same single axis.
"""

from tfopt.graph.law import LocalLaw, Match, const, op, return_input

PATTERNS = (
    op("ExpandDims", op("Squeeze", "x", role="inner"), const("axis")),
    op("Squeeze", op("ExpandDims", "x", const("axis"), role="inner")),
)


def when(match: Match) -> str | None:
    added = int(match.array("axis").ravel()[0])
    removed = match.attr("squeeze_dims", "root" if match.node().op == "Squeeze" else "inner")
    shape = match.shape("inner" if match.node().op == "Squeeze" else "x")
    same = removed == [added]  # both counted from the same end
    if not same and shape is not None and len(removed) == 1:
        same = removed[0] % len(shape) == added % len(shape)
    return None if same else f"axes {removed} are removed, and {added} is added"


LAW = LocalLaw(
    PATTERNS,
    when,
    return_input,
    after={"drop_training_nodes": "the nodes of a pair are neighbours then"},
    follows="fuse_casts",
)
