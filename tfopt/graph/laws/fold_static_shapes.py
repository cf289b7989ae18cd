"""Replace shapes, sizes and ranks that are known by constants.

    shape(x) = [a, b, …]    size(x) = a b …    rank(x) = n    shape(x)[i] = its i-th size

    before    x [n, 4] -> Shape -> StridedSlice(1) -> y
    after     Const(4) -> y

Requires: static sizes of the axes that the result contains. Static shapes hold for every input that is accepted.

Source: `MaterializeShapes` in Grappler's constant folding.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Maker, Match, Tensor, computed_law, const, op
from tfopt.graph.matching.parts import slice_vector

PART = op("StridedSlice", op("Shape", "x", role="shape"), const("begin"), const("end"), const("strides"))
PATTERNS = (PART, op(("Shape", "Size", "Rank"), "x"))


def compute(match: Match) -> NDArray[np.int64] | str:
    if match.has("shape") and (match.attr("ellipsis_mask") or match.attr("new_axis_mask")):
        return "the slice has an ellipsis or a new axis"
    shape = match.shape("x")
    if shape is None:
        return "a size is not known"
    if match.node().op == "Rank":
        return np.asarray(len(shape))
    part: tuple[int | None, ...] | int | None = shape
    if match.has("shape"):
        bounds = (int(match.array(name)[0]) for name in ("begin", "end", "strides"))
        part = slice_vector(match.node(), shape, *bounds)
    if part is None or (isinstance(part, tuple) and None in part):
        return "a size is not known"
    sizes = np.asarray(part, np.int64)
    return np.asarray(sizes.prod()) if match.node().op == "Size" else sizes


def build(match: Match, make: Maker, value: NDArray[np.int64]) -> Tensor:
    from tensorflow import as_dtype

    kind = match.attr("out_type", "shape" if match.has("shape") else "root") or as_dtype("int32").as_datatype_enum
    return make.constant("value", value.astype(as_dtype(kind).as_numpy_dtype))


LAW = computed_law(PATTERNS, compute, build, follows="fuse_dilated_convs")
