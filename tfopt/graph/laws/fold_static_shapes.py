"""Replace shapes, sizes and ranks that are known by constants.

    shape(x) = [a, b, …]    size(x) = a b …    rank(x) = n    shape(x)[i] = its i-th size

    before    x [n, 4] -> Shape -> StridedSlice(1) -> y
    after     Const(4) -> y

Requires: static sizes of the axes that the result contains. Static shapes hold for every input that is accepted.

Source: `MaterializeShapes` in Grappler's constant folding.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match
from tfopt.graph.matching.pattern import const, op
from tfopt.graph.mutable_graph import Tensor

PART = op("StridedSlice", op("Shape", "x", role="shape"), const("begin"), const("end"), const("strides"))
PATTERNS = (PART, op(("Shape", "Size", "Rank"), "x"))


def when(match: Match) -> str | None:
    """Refuse results that depend on an open size."""
    if match.has("shape") and (match.attr("ellipsis_mask") or match.attr("new_axis_mask")):
        return "the slice has an ellipsis or a new axis"
    value = _value(match)
    return "a size is not known" if value is None else None


def rewrite(match: Match, make: Maker) -> Tensor:
    """Return the constant."""
    from tensorflow import as_dtype

    kind = match.attr("out_type", "shape" if match.has("shape") else "root") or as_dtype("int32").as_datatype_enum
    return make.constant("value", np.asarray(_value(match), as_dtype(kind).as_numpy_dtype))


def _value(match: Match) -> int | list[int] | None:
    """Return the result; None if it is not known."""
    shape = match.shape("x")
    if shape is None:
        return None
    if match.node().op == "Rank":
        return len(shape)
    part: list[int | None] = list(shape)
    if match.has("shape"):
        begin, end, stride = (int(match.array(name)[0]) for name in ("begin", "end", "strides"))
        if match.attr("shrink_axis_mask"):
            part = [shape[begin]] if -len(shape) <= begin < len(shape) else [None]
        else:
            open_begin, open_end = match.attr("begin_mask") & 1, match.attr("end_mask") & 1
            part = part[None if open_begin else begin : None if open_end else end : stride]
    sizes = [size for size in part if size is not None]
    if len(sizes) < len(part):
        return None
    if match.node().op == "Size":
        return int(np.prod(sizes, dtype=np.int64))
    return sizes[0] if match.has("shape") and match.attr("shrink_axis_mask") else sizes


LAW = LocalLaw(PATTERNS, when, rewrite, follows="fuse_dilated_convs")
