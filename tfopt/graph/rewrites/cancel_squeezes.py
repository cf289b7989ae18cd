"""An axis of size 1 that is added and taken away, or taken away and added, changes nothing.

    Squeeze(ExpandDims(x, a), a) = ExpandDims(Squeeze(x, a), a) = x

    before    x -> Squeeze(1) -> ExpandDims(1) -> Conv2D
    after     x -> Conv2D

What stands between two convolutions of one axis. Holds for shapes of which nothing is known. Needs: one axis, the same.
"""

from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERNS = (
    op("ExpandDims", op("Squeeze", "x", role="inner"), const("axis")),
    op("Squeeze", op("ExpandDims", "x", const("axis"), role="inner")),
)


def when(match: Match) -> str | None:
    """Refuse two different axes."""
    added = int(match.array("axis").ravel()[0])
    taken = match.attr("squeeze_dims", "root" if match.node().op == "Squeeze" else "inner")
    wide = match.shape("inner" if match.node().op == "Squeeze" else "x")
    same = taken == [added]  # counted from the same end in the same number of axes
    if not same and wide is not None and len(taken) == 1:
        same = taken[0] % len(wide) == added % len(wide)
    return None if same else f"axes {taken} are taken away, and {added} is added"


def rewrite(match: Match, make: Maker) -> Tensor:
    """What was there at first."""
    return match.tensor("x")


LAW = Rule(PATTERNS, when, rewrite)
