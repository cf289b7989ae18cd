"""Operations that multiply by constants and add constants, element by element: ``factor * x + summand`` in many forms.

Mul, RealDiv, Add, AddV2, Sub, BiasAdd        with one constant
FusedBatchNorm to V3, BatchNormWithGlobalNormalization        with four, at inference
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.linear_ops import FLOATS
from tfopt.graph.mutable_graph import Node, Tensor
from tfopt.graph.pattern import Op, Pattern, const, op
from tfopt.graph.rewrite_rule import Maker, Match, attr

FUSED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
GLOBAL = "BatchNormWithGlobalNormalization"
ELEMENTWISE = ("Mul", "RealDiv", "Add", "AddV2", "Sub", "BiasAdd")
Floats = NDArray[np.float64]


class Affine(NamedTuple):
    """What multiplies and what is added, each with as many axes as the data; None where there is no such thing."""

    factor: Floats | None
    summand: Floats | None


def batch_norm_patterns(data: Pattern, role: str = "root") -> tuple[Op, Op]:
    """A batch norm in its two forms that are one operation, with constants named as everybody names them."""
    roles = [const(name) for name in ("gamma", "beta", "mean", "variance")]
    gamma, beta, mean, variance = roles
    return op(FUSED, data, *roles, role=role), op(GLOBAL, data, mean, variance, beta, gamma, role=role)


def affine_patterns(data: Pattern, role: str = "root") -> tuple[Op, ...]:
    """Every form; the constant of those that have one has the role ``constant``."""
    one = op(ELEMENTWISE, data, const("constant"), role=role)
    return one, op("Sub", const("constant"), data, role=role), *batch_norm_patterns(data, role)


def read_affine(match: Match, role: str, data: Tensor) -> Affine | str:
    """The factor and the summand of what has a role in a match, on data; or why it is no line of constants."""
    node, shape = match.node(role), match.graph.shape(data)
    if node.op in (*FUSED, GLOBAL):
        if match.attr("is_training", role):
            return "the batch norm is in training mode"
        rank = 4 if shape is None else len(shape)
        return Affine(
            *(_along(vector, batch_norm_axis(node, rank), rank) for vector in batch_norm_scale_bias(match, role))
        )
    array = match.array("constant")
    if array.dtype.name not in FLOATS:
        return f"the constant is {array.dtype.name}"
    if shape is None:
        return "the shape of the data is not known"
    if node.op == "BiasAdd":
        axis = 1 if attr(node, "data_format") == "NCHW" else len(shape) - 1
        return Affine(None, _along(array.astype(np.float64), axis, len(shape)))
    sizes = (1,) * (len(shape) - array.ndim) + array.shape
    if len(sizes) > len(shape) or any(one not in (1, other) for one, other in zip(sizes, shape, strict=True)):
        return "the constant may make the shape larger"
    return _elementwise(match, node, array.astype(np.float64).reshape(sizes))


def batch_norm_scale_bias(match: Match, role: str = "root") -> tuple[Floats, Floats]:
    """The factor and the summand of a batch norm, one number per channel."""
    gamma, beta, mean, variance = (
        match.array(name).astype(np.float64) for name in ("gamma", "beta", "mean", "variance")
    )
    old = match.node(role).op == GLOBAL
    if old and not match.attr("scale_after_normalization", role):
        gamma = np.ones_like(gamma)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = gamma / np.sqrt(variance + match.attr("variance_epsilon" if old else "epsilon", role))
    return factor, beta - factor * mean


def batch_norm_axis(norm: Node, rank: int) -> int:
    """The axis that a batch norm takes for that of the channels."""
    return 1 if attr(norm, "data_format", "NHWC").startswith("NC") else rank - 1


def _along(vector: Floats, axis: int, rank: int) -> Floats:
    return vector.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def _elementwise(match: Match, node: Node, array: Floats) -> Affine:
    if node.op == "Sub":
        if node.inputs[0] == match.tensor("constant"):
            return Affine(np.full_like(array, -1), array)
        return Affine(None, -array)
    if node.op == "RealDiv":
        with np.errstate(divide="ignore"):
            return Affine(1 / array, None)
    return Affine(array, None) if node.op == "Mul" else Affine(None, array)


def add_affine_nodes(make: Maker, line: Affine, data: Tensor, like: Node) -> Tensor:
    """The operations of a line on data, in the type of a node that has one."""
    from tensorflow import as_dtype

    kind = np.empty(0, as_dtype(attr(like, "T")).as_numpy_dtype)
    for op_name, array in (("Mul", line.factor), ("AddV2", line.summand)):
        if array is not None:
            made = make.node(op_name, data, make.constant("constant", array, kind), like=like)
            make.graph.know_shape(made, data)
            data = made
    return data


def overflows(line: Affine, kernel: NDArray[Any]) -> bool:
    """Whether a kernel may leave its range when it is multiplied by the factor, or the summand has no place in it."""
    most = float(np.abs(kernel.astype(np.float64)).max(initial=0))
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = [np.zeros(1)]
        arrays += [] if line.factor is None else [line.factor, line.factor * most]
        arrays += [] if line.summand is None else [line.summand]
        return not all(np.isfinite(array.astype(kernel.dtype).astype(np.float64)).all() for array in arrays)
