"""Reduce a tensor along other axes instead of its transpose.

    sum(Transpose(x, p), axes) = sum(x, p[axes])    if the other axes of x are in the same order in its transpose

    before    x -> Transpose(0, 3, 1, 2) -> Mean(axes 2, 3) -> y
    after     x -> Mean(axes 1, 2) -> y

A global average of a network with channels first ends like this. The same elements are reduced, a Mean, Sum or Prod of
floats in an order that the kernel chooses.

Requires: constant axes and permutation; no `keep_dims`; remaining axes in ascending order.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.laws.cancel_transposes import as_permutation
from tfopt.graph.op_registry import REDUCTIONS

PATTERN = op(tuple(sorted(REDUCTIONS)), op("Transpose", "x", const("permutation"), role="transpose"), const("axes"))


def when(match: Match) -> str | None:
    if match.attr("keep_dims"):
        return "the reduced axes stay in the result"
    permutation = as_permutation(match.array("permutation"))
    remaining = np.delete(permutation, match.array("axes").ravel() % len(permutation))
    return "the remaining axes would change their order" if (np.diff(remaining) < 0).any() else None


def rewrite(match: Match, make: Maker) -> Tensor:
    axes, permutation = match.array("axes"), as_permutation(match.array("permutation"))
    moved = permutation[axes % len(permutation)].astype(axes.dtype)
    return make.again(match.node(), match.tensor("x"), make.constant("axes", moved, axes))


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"cancel_transposes_around": "a Transpose is next to its last reader then"},
)
