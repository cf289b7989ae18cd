"""Move an affine operation from before a layout operation to after it, so that it can be folded into a kernel.

    view(scale x) * K = (scale' view(x)) * K        view(x + bias) * K = (view(x) + bias') * K

    before    x -> FusedBatchNormV3 -> Reshape (to one row) -> MatMul(K) -> y
    after     x -> Reshape -> Mul, AddV2 -> MatMul(K) -> y

`fold_scale_before` and `fold_shift_before` then fold it. scale' and bias' have the layout of the view's result.

Requires: constants that are equal for all elements that the view exchanges, and one number per channel of K; no bias if
the view adds zeros, as Pad and SpaceToBatchND do, because these zeros do not have the bias; no kernel before x, which
`push_before_view` and the folds prefer.
"""

from tfopt.graph.law import Maker, Match, Tensor, computed_law, const, one_of, op
from tfopt.graph.matching.affine_ops import Affine, Floats, add_affine_nodes, affine_patterns, overflows, read_affine
from tfopt.graph.matching.layout_ops import adds_zeros, kernel_behind, move, views_of
from tfopt.graph.matching.linear_ops import INPUT_REFUSED, PLAIN, channel_axis, input_channels, shift_refusal

PATTERN = op(PLAIN, one_of(*views_of(one_of(*affine_patterns("x", role="affine")))), const("kernel"))


def compute(match: Match) -> Affine | str:
    if not isinstance(kernel_behind(match.graph, match.tensor("x")), str):
        return "it folds into the kernel before it"
    if input_channels(match, "view") is None:
        return INPUT_REFUSED
    affine = read_affine(match, "affine", match.tensor("x"))
    if not isinstance(affine, str):
        affine = move(match, affine, Tensor(match.node("affine").name), back=False)
    if isinstance(affine, str):
        return affine
    if any(constant is not None and not _per_channel(match, constant) for constant in affine):
        return "the constant is not one number per channel"
    if affine.bias is not None and affine.bias.any():
        if adds_zeros(match):
            return f"the zeros of the {match.node('view').op} are not shifted"
        if reason := shift_refusal(match):
            return reason
    return "the weights may not be finite" if overflows(affine, match.array("kernel")) else affine


def build(match: Match, make: Maker, affine: Affine) -> Tensor:
    view = match.node("view")
    viewed = make.node(view.op, match.tensor("x"), *view.inputs[1:], like=view)
    make.graph.know_shape(viewed, Tensor(view.name))
    data = add_affine_nodes(make, affine, viewed, match.node("affine"))
    return make.node(match.node().op, data, match.tensor("kernel"), like=match.node())


def _per_channel(match: Match, constant: Floats) -> bool:
    return all(size == 1 or axis == channel_axis(match.node()) for axis, size in enumerate(constant.shape))


LAW = computed_law(
    (PATTERN,),
    compute,
    build,
    rounds=True,
    before={"fold_scale_before": "the node is next to the kernel then"},
    follows="push_factors_before_products",
)
