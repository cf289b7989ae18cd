"""Remove slices that select all elements.

    x[0:n] = x    where n is the size of x

    before    x -> StridedSlice(:, 0:5) of 5 columns -> Relu
    after     x -> Relu

Requires: begin 0, stride 1, and an end that is open or, with a static shape of x, the size; no axis is added or
removed.
"""

from collections.abc import Iterator

from tfopt.graph.law import LocalLaw, Match, const, op, return_input

SLICE = op("Slice", "x", const("begin"), const("size"))
STRIDED = op("StridedSlice", "x", const("begin"), const("end"), const("strides"))


def when(match: Match) -> str | None:
    if match.node().op == "StridedSlice" and (match.attr("new_axis_mask") or match.attr("shrink_axis_mask")):
        return "it adds or removes axes"
    return None if all(_axes(match)) else "it may leave out elements"


def _axes(match: Match) -> Iterator[bool]:
    """Yield for each axis of the slice whether all of it is selected."""
    begin, shape = match.array("begin"), match.shape("x")
    if match.node().op == "Slice":
        for axis, (first, size) in enumerate(zip(begin, match.array("size"), strict=True)):
            yield first == 0 and (size == -1 or (shape is not None and size == shape[axis]))
        return
    ellipsis, open_begin, open_end = (match.attr(f"{name}_mask") for name in ("ellipsis", "begin", "end"))
    for index, (first, last, stride) in enumerate(zip(begin, match.array("end"), match.array("strides"), strict=True)):
        if ellipsis >> index & 1:  # the axes without an entry
            continue
        size = None
        if shape is not None:  # entries after the ellipsis count from the end
            size = shape[index if ellipsis % (1 << index) == 0 else index - len(begin)]
        whole_end = bool(open_end >> index & 1) or (size is not None and last >= size)
        yield stride == 1 and (bool(open_begin >> index & 1) or first == 0) and whole_end


LAW = LocalLaw(
    (SLICE, STRIDED),
    when,
    return_input,
    after={"fold_constants": "bounds are constants then"},
    follows="cancel_squeezes",
)
