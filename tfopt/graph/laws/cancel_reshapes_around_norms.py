"""Compute a layer normalization that is written as a batch norm of reshaped rows from the rows themselves.

    Reshape(FusedBatchNormV3(Reshape(x, [1, n, d, 1]), 1, 0)) = (x - m) / sqrt(mean((x - m)^2) + epsilon)

    before    x -> Reshape -> FusedBatchNormV3(training, NCHW) -> Reshape -> y
    after     x, Mean -> Sub -> Mul -> y;  Sub -> Square -> Mean -> AddV2(epsilon) -> Rsqrt -> Mul

Keras 2 writes LayerNormalization so: each of n rows of d elements is a channel, whose own statistics the kernel of
training uses. On a CPU this kernel transposes its input and its output. The gain and the bias stay behind it.

Requires: one record with n channels of d elements, d the last axis of x; a scale of ones and an offset of zeros; a
result of the shape of x; float32; no control flow of version 1.

Source: `LayerNormalization.call` of Keras 2; the operation `FusedBatchNormV3`.
"""

import numpy as np

from tfopt.graph.law import INT32, LocalLaw, Maker, Match, Tensor, op
from tfopt.graph.matching.control_flow_v1 import is_framed

ROWS = op("Reshape", "x", "rows", role="before")
NORM = op("FusedBatchNormV3", ROWS, "scale", "offset", "mean", "variance", role="norm")
PATTERN = op("Reshape", NORM, "shape")


def when(match: Match) -> str | None:
    if is_framed(match.graph):
        return "the graph has control flow of version 1"
    if not match.attr("is_training", "norm") or match.attr("data_format", "norm") != "NCHW":
        return "its statistics are not those of rows"
    if match.attr("T", "norm") != 1 or match.attr("U", "norm") != 1:
        return "it is computed in float32"
    shape, rows = match.shape("x"), match.shape("before")
    if not shape or shape[-1] is None or rows is None or (rows[0], *rows[2:]) != (1, shape[-1], 1):
        return "the rows are not known to be those along the last axis"
    if not _is_full_of(match, "scale", 1) or not _is_full_of(match, "offset", 0):
        return "the scale is not 1, or the offset not 0"
    return None if _has_shape_of_input(match, shape) else "the result may have another shape"


def rewrite(match: Match, make: Maker) -> Tensor:
    like, data = match.node("norm"), match.tensor("x")
    axis = make.integers("axis", [len(match.shape("x") or ()) - 1])
    mean = make.node("Mean", data, axis, like=like, role="mean", keep_dims=True, Tidx=INT32)
    centered = make.node("Sub", data, mean, like=like)
    squares = make.node("Square", centered, like=like)
    variance = make.node("Mean", squares, axis, like=like, role="variance", keep_dims=True, Tidx=INT32)
    epsilon = make.constant("epsilon", np.asarray(match.attr("epsilon", "norm"), np.float32))
    rsqrt = make.node("Rsqrt", make.node("AddV2", variance, epsilon, like=like), like=like)
    return make.node("Mul", centered, rsqrt, like=like)


def _is_full_of(match: Match, role: str, number: int) -> bool:
    tensor = match.tensor(role)
    node = match.graph.nodes[tensor.node]
    value = node.inputs[1] if node.op == "Fill" else tensor
    return match.graph.is_constant(value) and bool((match.graph.array(value) == number).all())


def _has_shape_of_input(match: Match, shape: tuple[int | None, ...]) -> bool:
    target = match.graph.nodes[match.tensor("shape").node]
    if target.op == "Shape" and target.inputs[0] == match.tensor("x"):
        return True
    return match.shape("root") == shape and sum(size is None for size in shape) < 2


LAW = LocalLaw(
    (PATTERN,),
    when,
    rewrite,
    rounds=True,
    after={"fold_shift": "the folds match batch norms"},
    before={"cancel_reshapes_around": "that law sees rows instead of a batch norm"},
)
