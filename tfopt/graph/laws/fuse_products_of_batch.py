"""Replace the products of all matrices of a batch with one constant matrix by a single product of their rows.

    x K = Reshape(Reshape(x, [-1, k]) K, [..., n])    for x [..., k] and K [k, n]

    before    x [b, t, k] -> BatchMatMulV2(K) -> y
    after     x -> Reshape(-1, k) -> MatMul(K) -> Reshape(-1, t, n) -> y

Keras 3 writes the projections of attention in this way. A MatMul takes its bias and activation into its kernel when
TensorFlow runs it, a BatchMatMulV2 does not; `fuse_reshapes` and `cancel_reshapes_around` remove the Reshapes. Every
sum has the same terms, in an order that the kernel chooses.

Requires: floats; x of rank 3 at least, not transposed; a result with at most one open size and no size of 0.
"""

from tfopt.graph.law import LocalLaw, Maker, Match, Tensor, const, op
from tfopt.graph.matching.linear_ops import FLOATS

PATTERN = op("BatchMatMulV2", "x", const("kernel"))


def when(match: Match) -> str | None:
    kernel, shape, result = match.array("kernel"), match.shape("x"), match.shape("root")
    if kernel.dtype.name not in FLOATS:
        return f"the kernel is {kernel.dtype.name}"
    if kernel.ndim != 2:
        return "there are several kernels"
    if match.attr("adj_x"):
        return "the matrices are transposed"
    if shape is None or result is None or len(shape) < 3:
        return "the matrices are not known to be a batch"
    sizes = [*result, *kernel.shape]
    return "several sizes of the result are open, or one is 0" if result.count(None) > 1 or 0 in sizes else None


def rewrite(match: Match, make: Maker) -> Tensor:
    kernel, root, transposed = match.array("kernel"), match.node(), bool(match.attr("adj_y"))
    inner, outer = kernel.shape[::-1] if transposed else kernel.shape
    rows = make.reshape(match.tensor("x"), (None, inner), root)
    product = make.node("MatMul", rows, match.tensor("kernel"), like=root, transpose_a=False, transpose_b=transposed)
    make.graph.set_shape(rows, (None, inner))
    make.graph.set_shape(product, (None, outer))
    return make.reshape(product, match.shape("root") or (), root)


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"fuse_products_of_parts": "that law makes products of a batch"},
    before={"fold_scale_before": "the folds fold into a MatMul then"},
)
