"""What multiplies and adds constants moves before an operation that only lays out elements, to the kernel behind it.

    c view(x * K) = view(c' (x * K))        view(x * K) + c = view(x * K + c')

    before    x -> Conv2D(K) -> Squeeze -> BiasAdd(b) -> FusedBatchNormV3 -> y
    after     x -> Conv2D(K) -> Mul, AddV2, AddV2 -> Squeeze -> y

Then the folds find it. Convolutions of one axis end with a Squeeze, dilated ones of TensorFlow 1 and depthwise ones
with BatchToSpaceND, matrix products of sequences with a Reshape, and other layouts with a Transpose; the batch norm of
a matrix product lies between two Reshape. c' is c laid out as the data of the view. Needs: a constant kernel behind the
view, and nothing but such operations in between; a c that stays the same for all elements that the view moves among
each other.
"""

from tfopt.graph.affine_ops import Affine, add_affine_nodes, affine_patterns, overflows, read_affine
from tfopt.graph.layout_ops import KEEPING, before, kernel_behind, views_of
from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.pattern import one_of
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERNS = affine_patterns(one_of(*views_of("x")))


def when(match: Match) -> str | None:
    """Refuse where there is no kernel behind, or no such constant."""
    if match.node("view").op not in KEEPING:
        return f"{match.node('view').op} adds elements"
    kernel = kernel_behind(match.graph, match.tensor("x"))
    if isinstance(kernel, str):
        return kernel
    line = _line(match)
    if isinstance(line, str):
        return line
    return "the weights may not be finite" if overflows(line, kernel) else None


def rewrite(match: Match, make: Maker) -> Tensor:
    """The view of a product and a sum."""
    line = _line(match)
    assert not isinstance(line, str)  # `when` saw to it
    view = match.node("view")
    drawn = add_affine_nodes(make, line, match.tensor("x"), match.node())
    return make.node(view.op, drawn, *view.inputs[1:], like=view)


def _line(match: Match) -> Affine | str:
    line = read_affine(match, "root", Tensor(match.node("view").name))
    if isinstance(line, str):
        return line
    moved = []
    for constant in line:
        found = None if constant is None else before(match, constant, match.tensor("x"))
        if isinstance(found, str):
            return found
        if found is not None and constant is not None and found.size > constant.size:
            return "the constant would be larger"
        moved.append(found)
    return Affine(*moved)


LAW = Rule(PATTERNS, when, rewrite)
