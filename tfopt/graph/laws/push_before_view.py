"""Move an affine operation from after a layout operation to before it, so that it can be folded into a kernel.

    scale view(x * K) = view(scale' (x * K))        view(x * K) + bias = view(x * K + bias')

    before    x -> Conv2D(K) -> Squeeze -> BiasAdd(b) -> FusedBatchNormV3 -> y
    after     x -> Conv2D(K) -> Mul, AddV2, AddV2 -> Squeeze -> y

The folds then apply. One-dimensional convolutions end with a Squeeze, dilated ones of TensorFlow 1 and depthwise ones
with BatchToSpaceND, matrix products of sequences with a Reshape, and other data formats with a Transpose; the batch
norm of a matrix product is between two Reshapes. scale' and bias' have the layout of the view's input.

Requires: a constant kernel before the view, with only such operations in between; constants that are equal for all
elements that the view exchanges.
"""

from tfopt.graph.law import Maker, Match, Tensor, computed_law, one_of
from tfopt.graph.matching.affine_ops import Affine, add_affine_nodes, affine_patterns, overflows, read_affine
from tfopt.graph.matching.layout_ops import KEEPING, kernel_behind, move, views_of

PATTERNS = affine_patterns(one_of(*views_of("x")))


def compute(match: Match) -> Affine | str:
    if match.node("view").op not in KEEPING:
        return f"{match.node('view').op} adds elements"
    kernel = kernel_behind(match.graph, match.tensor("x"))
    if isinstance(kernel, str):
        return kernel
    affine = read_affine(match, "root", Tensor(match.node("view").name))
    moved = affine if isinstance(affine, str) else move(match, affine, match.tensor("x"), back=True)
    if isinstance(affine, str) or isinstance(moved, str):
        return moved
    pairs = zip(affine, moved, strict=True)
    if any(one is not None and other is not None and other.size > one.size for one, other in pairs):
        return "the constant would be larger"
    return "the weights may not be finite" if overflows(moved, kernel) else moved


def build(match: Match, make: Maker, affine: Affine) -> Tensor:
    view = match.node("view")
    data = add_affine_nodes(make, affine, match.tensor("x"), match.node())
    return make.node(view.op, data, *view.inputs[1:], like=view)


LAW = computed_law(
    PATTERNS,
    compute,
    build,
    rounds=True,
    before={"fold_scale": "the node is next to the kernel then"},
    follows="push_after_view",
)
