"""Reduce a tensor along other axes instead of its transpose.

    sum(Transpose(x, p), axes) = sum(x, p[axes])    if the other axes of x are in the same order in its transpose

    before    x -> Transpose(0, 3, 1, 2) -> Mean(axes 2, 3) -> y
    after     x -> Mean(axes 1, 2) -> y

A global average of a network with channels first ends like this. The same elements are reduced, a Mean, Sum or Prod of
floats in an order that the kernel chooses.

Requires: constant axes and permutation; no `keep_dims`; remaining axes in ascending order.
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.op_registry import REDUCTIONS

PATTERN = op(tuple(sorted(REDUCTIONS)), op("Transpose", "x", const("permutation"), role="transpose"), const("axes"))


def when(match: Match) -> str | None:
    if match.attr("keep_dims"):
        return "the reduced axes stay in the result"
    permutation = _permutation(match)
    remaining = np.delete(permutation, match.array("axes").ravel() % len(permutation))
    return "the remaining axes would change their order" if (np.diff(remaining) < 0).any() else None


def rewrite(match: Match, make: Maker) -> Tensor:
    axes, permutation = match.array("axes"), _permutation(match)
    moved = permutation[axes % len(permutation)].astype(axes.dtype)
    return make.again(match.node(), match.tensor("x"), make.constant("axes", moved, axes))


def _permutation(match: Match) -> NDArray[np.int64]:
    permutation = match.array("permutation").astype(np.int64)
    return permutation % max(len(permutation), 1)


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"cancel_transposes_around": "a Transpose is next to its last reader then"},
)
