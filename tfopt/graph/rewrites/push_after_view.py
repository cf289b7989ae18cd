"""What multiplies and adds constants moves after an operation that only lays out elements, to the kernel before it.

    view(c x) * K = (c' view(x)) * K        view(x + c) * K = (view(x) + c') * K

    before    x -> FusedBatchNormV3 -> Reshape (to one row) -> MatMul(K) -> y
    after     x -> Reshape -> Mul, AddV2 -> MatMul(K) -> y

Then `fold_scale_before` and `fold_shift_before` find it. c' is c laid out as the result of the view. Needs: a c that
stays the same for all elements that the view moves among each other, and that is one number per channel where it meets
K; where the view adds zeros, as Pad and SpaceToBatchND do, no sum, since these zeros are not shifted; no kernel behind
x, which `push_before_view` and the folds prefer.
"""

from tfopt.graph.affine_ops import Affine, Floats, add_affine_nodes, affine_patterns, overflows, read_affine
from tfopt.graph.layout_ops import adds_zeros, after, kernel_behind, views_of
from tfopt.graph.linear_op_inputs import INPUT_REFUSED, input_channels, shift_refusal
from tfopt.graph.linear_ops import PLAIN, channel_axis
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import const, one_of, op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERN = op(PLAIN, one_of(*views_of(one_of(*affine_patterns("x", role="line")))), const("kernel"))


def when(match: Match) -> str | None:
    """Refuse what would not fold into the kernel."""
    if not isinstance(kernel_behind(match.graph, match.tensor("x")), str):
        return "it folds into the kernel behind it"
    if input_channels(match, "view") is None:
        return INPUT_REFUSED
    line = _line(match)
    if isinstance(line, str):
        return line
    if any(constant is not None and not _per_channel(match, constant) for constant in line):
        return "the constant is not one number per channel"
    if line.bias is not None and line.bias.any():
        if adds_zeros(match):
            return f"the zeros of the {match.node('view').op} are not shifted"
        if reason := shift_refusal(match):
            return reason
    return "the weights may not be finite" if overflows(line, match.array("kernel")) else None


def rewrite(match: Match, make: Maker) -> Tensor:
    """The operation on a product and a sum on the view."""
    line = _line(match)
    assert not isinstance(line, str)  # `when` saw to it
    view = match.node("view")
    seen = make.node(view.op, match.tensor("x"), *view.inputs[1:], like=view)
    make.graph.know_shape(seen, Tensor(view.name))
    drawn = add_affine_nodes(make, line, seen, match.node("line"))
    return make.node(match.node().op, drawn, match.tensor("kernel"), like=match.node())


def _line(match: Match) -> Affine | str:
    line = read_affine(match, "line", match.tensor("x"))
    if isinstance(line, str):
        return line
    moved = []
    for constant in line:
        found = None if constant is None else after(match, constant, Tensor(match.node("line").name))
        if isinstance(found, str):
            return found
        moved.append(found)
    return Affine(*moved)


def _per_channel(match: Match, constant: Floats) -> bool:
    return all(size == 1 or axis == channel_axis(match.node()) for axis, size in enumerate(constant.shape))


LAW = Rule((PATTERN,), when, rewrite)
