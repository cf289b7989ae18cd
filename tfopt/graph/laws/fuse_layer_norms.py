"""Compute a layer normalization from the centered input.

    x s + (b - m s) = (x - m) r g + b    for m = mean(x), r = 1 / sqrt(mean((x - m)^2) + epsilon), s = r g

    before    x, s -> Mul;  m -> Neg, s -> Mul -> AddV2(b);  both -> AddV2 -> y
    after     x, m -> Sub -> Mul(r) -> Mul(g) -> AddV2(b) -> y;  Sub -> Square -> Mean -> AddV2, Rsqrt -> r

Keras 3 and tf_keras multiply the gain g into r first, so that s and m s are as large as x. Afterwards, one pass over
memory less is needed, and one product less in which both sides are broadcast.

With oneDNN, TensorFlow has a kernel for the form with ``b - m s``, but for a single record it takes several times as
long as the operations (docs/benchmarks.md).

Requires: means along the last axis, with ``keep_dims``; constants g and b; g is one number for each element along that
axis; nothing else reads what is computed in between.
"""

from tfopt.graph.law import Graph, Maker, Match, Node, SearchLaw, Tensor, attr, const, matches, one_of, op

SUMS = ("Add", "AddV2")
CENTERED = op("Sub", "x", "mean", role="centered")
SQUARES = one_of(op("SquaredDifference", "x", "mean", role="squares"), op("Square", CENTERED, role="squares"))
VARIANCE = op("Mean", SQUARES, "axes", role="variance")
RSQRT = op("Rsqrt", op(SUMS, VARIANCE, const("epsilon"), role="stable"), role="rsqrt")
GAINED = op("Mul", RSQRT, const("gain"), role="gained")  # s
NEGATED = op("Mul", op("Neg", "mean", role="sign"), "gained", role="shifted")  # - m s
SHIFTS = (
    op("Sub", const("bias"), op("Mul", "mean", "gained", role="shifted"), role="shift"),
    op(SUMS, const("bias"), NEGATED, role="shift"),
    NEGATED,
)
PATTERN = op(SUMS, op("Mul", "x", GAINED, role="scaled"), one_of(*SHIFTS))


def find(graph: Graph, root: Node) -> Match | str | None:
    for match in matches(graph, root, (PATTERN,)):
        mean = graph.nodes[match.tensor("mean").node]
        if mean.op == "Mean" and mean.inputs[0] == match.tensor("x"):
            return _refusal(match, mean) or match
    return None


def rewrite(match: Match, make: Maker) -> list[Tensor]:
    like, variance = make.root, match.node("variance")
    centered = make.node("Sub", match.tensor("x"), match.tensor("mean"), like=like)
    squares = make.node("Square", centered, like=like)
    mean = make.node("Mean", squares, match.tensor("axes"), like=variance)
    rsqrt = make.node("Rsqrt", make.node("AddV2", mean, match.tensor("epsilon"), like=like), like=like)
    result = make.node("Mul", make.node("Mul", centered, rsqrt, like=like), _vector(match, make, "gain"), like=like)
    return [make.node("AddV2", result, _vector(match, make, "bias"), like=like) if match.has("bias") else result]


def _refusal(match: Match, mean: Node) -> str | None:
    graph = match.graph
    if match.node().name in graph.fed:
        return "it is fed from outside"
    if reason := match.inner_refusal():
        return reason
    shape = match.shape("x")
    if shape is None:
        return "the rank is not known"
    for node in (match.node("variance"), mean):
        axes = graph.array(node.inputs[1]).ravel() % len(shape) if graph.is_constant(node.inputs[1]) else ()
        if list(axes) != [len(shape) - 1] or not attr(node, "keep_dims"):
            return "the means are not along the last axis"
    constants = [match.array(role) for role in ("gain", "bias") if match.has(role)]
    if constants[0].shape[-1:] != shape[-1:] or any(array.size != shape[-1] for array in constants):
        return "the gain or the bias is not one number for each element along the last axis"
    return None


def _vector(match: Match, make: Maker, role: str) -> Tensor:
    """Return a constant along the last axis without axes of size 1 before it."""
    array = match.array(role)
    return match.tensor(role) if array.ndim == 1 else make.constant("constant", array.reshape(-1))


LAW = SearchLaw(
    SUMS,
    find,
    rewrite,
    rounds=True,
    after={"fold_shift": "this law removes a product and a sum that the folds match"},
    before={"cancel_reshapes_around": "constants have the shape that a layer gave them"},
)
