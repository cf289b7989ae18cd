"""Affine operations with constants, ``scale * x + bias`` element by element, in all forms that graphs have.

Mul, RealDiv, Add, AddV2, Sub, BiasAdd        with one constant
FusedBatchNorm to V3, BatchNormWithGlobalNormalization        with four, in inference
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Maker, Match, Node, Op, Pattern, Tensor, attr, const, op
from tfopt.graph.matching.linear_ops import FLOATS, RANKS, channel_axis

FUSED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
GLOBAL = "BatchNormWithGlobalNormalization"
ELEMENTWISE = ("Mul", "RealDiv", "Add", "AddV2", "Sub", "BiasAdd")
Floats = NDArray[np.float64]


class Affine(NamedTuple):
    """The constants of ``scale * x + bias``, each with the rank of the data; None stands for 1 and for 0."""

    scale: Floats | None
    bias: Floats | None


def batch_norm_patterns(data: Pattern, role: str = "root") -> tuple[Op, Op]:
    """Return the patterns of a batch norm that is one operation; the constants have their usual names as roles."""
    roles = [const(name) for name in ("gamma", "beta", "mean", "variance")]
    gamma, beta, mean, variance = roles
    return op(FUSED, data, *roles, role=role), op(GLOBAL, data, mean, variance, beta, gamma, role=role)


def affine_patterns(data: Pattern, role: str = "root") -> tuple[Op, ...]:
    """Return the patterns of all forms; a pattern with a single constant gives it the role ``constant``."""
    elementwise = op(ELEMENTWISE, data, const("constant"), role=role)
    return elementwise, op("Sub", const("constant"), data, role=role), *batch_norm_patterns(data, role)


def read_affine(match: Match, role: str, data: Tensor) -> Affine | str:
    """Return the scale and bias of the operation with a role in a match, or why they are not constants."""
    node, shape = match.node(role), match.graph.shape(data)
    if node.op in (*FUSED, GLOBAL):
        if match.attr("is_training", role):
            return "the batch norm is in training mode"
        rank = 4 if shape is None else len(shape)
        axis = batch_norm_axis(node, rank)
        return Affine(*(_along(vector, axis, rank) for vector in batch_norm_scale_bias(match, role)))
    array = match.array("constant")
    if array.dtype.name not in FLOATS:
        return f"the constant is {array.dtype.name}"
    if shape is None:
        return "the shape of the data is not known"
    if node.op == "BiasAdd":
        axis = 1 if attr(node, "data_format") == "NCHW" else len(shape) - 1
        return Affine(None, _along(array.astype(np.float64), axis, len(shape)))
    sizes = (1,) * (len(shape) - array.ndim) + array.shape
    if len(sizes) > len(shape) or any(size not in (1, other) for size, other in zip(sizes, shape, strict=True)):
        return "the constant may make the shape larger"
    return _elementwise(match, node, array.astype(np.float64).reshape(sizes))


def batch_norm_scale_bias(match: Match, role: str = "root") -> tuple[Floats, Floats]:
    """Return the scale and bias of a batch norm, one number per channel."""
    constants = ("gamma", "beta", "mean", "variance")
    gamma, beta, mean, variance = (match.array(name).astype(np.float64) for name in constants)
    is_global = match.node(role).op == GLOBAL
    if is_global and not match.attr("scale_after_normalization", role):
        gamma = np.ones_like(gamma)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = gamma / np.sqrt(variance + match.attr("variance_epsilon" if is_global else "epsilon", role))
    return scale, beta - scale * mean


def batch_norm_axis(norm: Node, rank: int) -> int:
    """Return the channel axis of a batch norm."""
    return 1 if attr(norm, "data_format", "NHWC").startswith("NC") else rank - 1


def batch_norm_refusal(match: Match, role: str, linear: Node) -> str | None:
    """Return why a batch norm cannot be folded into a linear operation, whatever its constants are, or None."""
    if match.attr("is_training", role):
        return "the batch norm is in training mode"
    own, axis = batch_norm_axis(match.node(role), RANKS.get(linear.op, 4)), channel_axis(linear)
    if own == axis:
        return None
    return f"the batch norm normalizes axis {own}, the channels of the {linear.op} are axis {axis}"


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


def add_affine_nodes(make: Maker, affine: Affine, data: Tensor, like: Node) -> Tensor:
    """Add the operations of an affine function after a tensor, with the dtype of the node ``like``."""
    for op_name, array in (("Mul", affine.scale), ("AddV2", affine.bias)):
        if array is not None:
            result = make.node(op_name, data, make.typed("constant", array, like), like=like)
            make.graph.know_shape(result, data)
            data = result
    return data


def overflows(affine: Affine, kernel: NDArray[Any]) -> bool:
    """Return True if the kernel times the scale, or the bias, may be out of range of the kernel's dtype."""
    most = float(np.abs(kernel.astype(np.float64)).max(initial=0))
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = [np.zeros(1)]
        arrays += [] if affine.scale is None else [affine.scale, affine.scale * most]
        arrays += [] if affine.bias is None else [affine.bias]
        return not all(np.isfinite(array.astype(kernel.dtype).astype(np.float64)).all() for array in arrays)
