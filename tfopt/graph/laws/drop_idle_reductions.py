"""Remove operations along axes of size 1, where each result has a single element of the input.

    sum(x, no axis) = max(x, an axis of size 1, keepdims) = reverse(x, an axis of size 1) = x
    shuffle(one number, or one row) = x    transpose(x, only axes of size 1 change their places) = reshape(x)
    pack([x]) = ExpandDims(x)        mean(x, an axis of size 1) = Squeeze(x)

    before    x [n, 1] -> Mean(axis 1) -> y
    after     x -> Squeeze(1) -> y

TensorFlow copies the elements in this case, so NaN, infinity and the sign of zero stay.

Requires: constant axes; static sizes of these axes.

Source: `RemoveReverse`, `RemoveShuffleOrTranspose`, `SimplifyReduction` and `SimplifyPack` in Grappler's constant
folding; ReductionHelper::Simplify in tensorflow/core/kernels/reduction_ops_common.cc.
"""

from typing import Any

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.op_registry import REDUCTIONS

PATTERNS = (
    op((*sorted(REDUCTIONS), "ReverseV2"), "x", const("axes")),
    op("Transpose", "x", const("permutation")),
    op(("RandomShuffle", "Pack"), "x"),
)


def when(match: Match) -> str | None:
    shape = match.shape("x")
    if match.node().op == "Pack":
        return None
    if match.has("axes") and not match.array("axes").size:
        return None
    if shape is None:
        return "the shape of the input is not known"
    if match.node().op == "RandomShuffle":
        return None if shape == () or shape[0] == 1 else "there may be several rows"
    if match.has("axes"):
        return None if all(shape[axis] == 1 for axis in _axes(match, shape)) else "an axis may be larger than 1"
    order = match.array("permutation").astype(int) % max(len(shape), 1)
    large = [axis for axis in order if shape[axis] != 1]
    if large != sorted(large):
        return "it moves an axis larger than 1"
    return None if len([size for size in shape if size is None]) < 2 or _same(match) else "several sizes are open"


def rewrite(match: Match, make: Maker) -> Tensor:
    node = match.node()
    if node.op == "Pack":
        return make.expand(match.tensor("x"), match.attr("axis"), node)
    if node.op == "Transpose" and not _same(match):
        order = match.array("permutation")
        sizes = [(match.shape("x") or ())[axis] for axis in order]
        return make.reshape(match.tensor("x"), sizes, node)
    if node.op not in REDUCTIONS or match.attr("keep_dims") or not match.array("axes").size:
        return match.tensor("x")
    axes = _axes(match, match.shape("x") or ())
    kinds: dict[str, Any] = {} if "T" in node.attr else {"T": 10}  # All and Any have no attribute for bool
    return make.node("Squeeze", match.tensor("x"), like=node, squeeze_dims=axes, **kinds)


def _same(match: Match) -> bool:
    """Return True if a transposition leaves every axis where it is, but for equal ones of size 1."""
    shape = match.shape("x") or ()
    return tuple(shape[axis] for axis in match.array("permutation")) == shape


def _axes(match: Match, shape: tuple[int | None, ...]) -> list[int]:
    return sorted({int(axis) % len(shape) for axis in match.array("axes").ravel()}) if shape else []


LAW = LocalLaw(
    PATTERNS,
    when,
    rewrite,
    after={"fold_reshape_sizes": "more axes are known to be of size 1 then"},
    follows="fold_selects",
)
