"""A slice that takes everything equals its input.

    x[0:n] = x    where n is the size of x

    before    x -> StridedSlice(:, 0:5) of 5 columns -> Relu
    after     x -> Relu

Needs: a begin that is 0, a stride of 1, and an end that is open or, with a static shape of x, the size; no axis that is
added or taken away.
"""

from collections.abc import Iterator

from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

SLICE = op("Slice", "x", const("begin"), const("size"))
STRIDED = op("StridedSlice", "x", const("begin"), const("end"), const("strides"))


def when(match: Match) -> str | None:
    """Refuse what leaves something out, or may."""
    if match.node().op == "StridedSlice" and (match.attr("new_axis_mask") or match.attr("shrink_axis_mask")):
        return "it adds axes, or takes some away"
    return None if all(_axes(match)) else "it may leave something out"


def rewrite(match: Match, make: Maker) -> Tensor:
    """What is sliced."""
    return match.tensor("x")


def _axes(match: Match) -> Iterator[bool]:
    """Whether all of each axis that the slice speaks of is taken."""
    begin, shape = match.array("begin"), match.shape("x")
    if match.node().op == "Slice":
        for axis, (first, size) in enumerate(zip(begin, match.array("size"), strict=True)):
            yield first == 0 and (size == -1 or (shape is not None and size == shape[axis]))
        return
    ellipsis, open_begin, open_end = (match.attr(f"{name}_mask") for name in ("ellipsis", "begin", "end"))
    for place, (first, last, stride) in enumerate(zip(begin, match.array("end"), match.array("strides"), strict=True)):
        if ellipsis >> place & 1:  # all axes that nothing is said of
            continue
        size = None
        if shape is not None:  # what stands behind the ellipsis counts from the end
            size = shape[place if ellipsis % (1 << place) == 0 else place - len(begin)]
        whole_end = bool(open_end >> place & 1) or (size is not None and last >= size)
        yield stride == 1 and (bool(open_begin >> place & 1) or first == 0) and whole_end


LAW = Rule((SLICE, STRIDED), when, rewrite)
