"""Move a factor of a product of two tensors to the one that a kernel makes, into which it is folded.

    c (q k) = (c q) k

    before    x -> MatMul(K) -> Reshape -> Einsum(with k) -> Mul(c) -> y
    after     x -> MatMul(K) -> Reshape -> Mul(c) -> Einsum(with k) -> y

Attention scales its scores in this way. `push_before_view` and `fold_scale` then fold the factor into the kernel, and
one pass over the scores less is left. If c is a power of two, as for heads of 4, 16, 64 or 256 elements, every product
has the same digits as before, otherwise it is rounded at another place.

Requires: one positive finite number c, of floats; a constant kernel before one of the factors, with only layout and
affine operations in between.
"""

import numpy as np

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.layout_ops import kernel_behind
from tfopt.graph.matching.linear_ops import FLOATS

PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "Einsum")
PATTERN = op(("Mul", "RealDiv"), op(PRODUCTS, "x", "y", role="product"), const("factor"))


def when(match: Match) -> str | None:
    factor = match.array("factor")
    if factor.dtype.name not in FLOATS or factor.size != 1 or factor.ndim > len(match.shape("product") or ()):
        return "the factor is not one number"
    if not 0 < float(factor.ravel()[0]) < np.inf:
        return "the factor is not positive and finite"
    if match.node().inputs[0].node != match.node("product").name and match.node().op == "RealDiv":
        return "the product is the divisor"
    return None if _side(match) else "neither of the tensors comes from a kernel"


def rewrite(match: Match, make: Maker) -> Tensor:
    side = _side(match)
    factor = make.constant("factor", match.array("factor").reshape(()))
    scaled = make.node(match.node().op, match.tensor(side), factor, like=match.node())
    make.graph.know_shape(scaled, match.tensor(side))
    inputs = [scaled if role == side else match.tensor(role) for role in ("x", "y")]
    return make.node(match.node("product").op, *inputs, like=match.node("product"))


def _side(match: Match) -> str:
    """Return the role of the tensor that a kernel makes; empty if there is none."""
    for role in ("x", "y"):
        if not isinstance(kernel_behind(match.graph, match.tensor(role)), str):
            return role
    return ""


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"fuse_products_of_batch": "the kernel before a factor is one of a MatMul then"},
    before={"push_before_view": "the factor is pushed on to the kernel"},
)
