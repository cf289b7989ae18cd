"""Linear operations with a kernel: the channel axis of the output, and the kernel axes that produce the channels.

The scale of a channel multiplies the part of the kernel that produces it (layouts of tf.raw_ops):

    Conv2D, Conv3D                               [*window, in / groups, out]    the last axis
    DepthwiseConv2dNative                        [h, w, in, multiplier]         the last two: in * multiplier + m
    Conv2DBackpropInput, Conv3DBackpropInputV2   [*window, out, in]             the last but one
    MatMul                                       [in, out], or transposed       the last, or the first
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Maker, Match, attr
from tfopt.graph.matching.pattern import const, one_of, op
from tfopt.graph.mutable_graph import Node, Tensor

Vector = NDArray[np.float64]

PLAIN = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul")  # data, kernel
TRANSPOSED = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")  # sizes, kernel, data
LINEAR = one_of(
    op(PLAIN, "x", const("kernel"), role="linear"), op(TRANSPOSED, "sizes", const("kernel"), "x", role="linear")
)
ADDING = ("BiasAdd", "Add", "AddV2", "Sub")
WITH_BIAS = op(ADDING, LINEAR, const("existing bias"), role="add")
AFFINE = one_of(WITH_BIAS, LINEAR)

FLOATS = {"float16", "bfloat16", "float32", "float64"}
RANKS = {"Conv3D": 5, "Conv3DBackpropInputV2": 5, "MatMul": 2}


def refusal(match: Match) -> str | None:
    """Return why nothing can be folded into the linear operation of a match, or None."""
    if match.has("add") and existing_bias(match) is None:
        return "the bias before it is not one number per channel"
    return None


def existing_bias(match: Match) -> Vector | None:
    """Return the bias per channel after the linear operation of a match; zeros without one, None if it is no vector."""
    if not match.has("add"):
        return np.zeros(channels(match))
    return along_channels(match, match.node("add"), "existing bias")


def along_channels(match: Match, node: Node, role: str) -> Vector | None:
    """Return a constant of an elementwise operation as a vector ``[channels]``; see `as_vector`."""
    return as_vector(match.array(role), node, match.node("linear"), channels(match))


def as_vector(array: NDArray[Any], node: Node, linear: Node, count: int) -> Vector | None:
    """Return the constant of an operation next to a linear one as a vector ``[count]``; None if it is no such vector.

    It is negated in ``x - c``, and ``1 / c`` in ``x / c``, so that the operation is a sum or a product.
    """
    axis, rank = channel_axis(linear), RANKS.get(linear.op, 4)
    if node.op == "BiasAdd":
        same = axis == (1 if attr(node, "data_format") == "NCHW" else rank - 1)
        return array.astype(np.float64) if same else None
    if array.ndim > rank:
        return None
    sizes = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for other, size in enumerate(sizes) if other != axis) or sizes[axis] not in (1, count):
        return None
    vector = np.broadcast_to(array.astype(np.float64).ravel(), (count,))
    if node.op == "Sub":
        return -vector
    with np.errstate(divide="ignore"):
        return 1 / vector if node.op == "RealDiv" else vector


def channel_axis(linear: Node) -> int:
    """Return the channel axis, of the data and of the output."""
    return 1 if attr(linear, "data_format", "NHWC").startswith("NC") else RANKS.get(linear.op, 4) - 1


def channels(match: Match) -> int:
    """Return the number of output channels of the linear operation."""
    return int(np.prod([match.array("kernel").shape[axis] for axis in _axes(match.node("linear"))]))


def scaled(match: Match, scale: Vector) -> NDArray[np.float64]:
    """Return the kernel with the part of each output channel multiplied by its scale."""
    kernel, axes = match.array("kernel"), _axes(match.node("linear"))
    sizes = [size if axis - kernel.ndim in axes or axis in axes else 1 for axis, size in enumerate(kernel.shape)]
    return kernel.astype(np.float64) * scale.reshape(sizes)


def range_refusal(match: Match, *arrays: NDArray[Any]) -> str | None:
    """Return why new weights do not fit the kernel's dtype, or None; integers would wrap around."""
    dtype = match.array("kernel").dtype
    if dtype.name not in FLOATS:
        return f"the weights are {dtype.name}"
    with np.errstate(over="ignore"):
        fits = all(np.isfinite(array.astype(dtype).astype(np.float64)).all() for array in arrays)
    return None if fits else f"the weights would not be finite in {dtype.name}"


def affine(match: Match, make: Maker, kernel: NDArray[Any], bias: Vector | None = None, role: str = "linear") -> Tensor:
    """Add the linear operation with a role again with another kernel, followed by a bias unless that is None."""
    linear, like, data = match.node(role), match.array("kernel"), match.tensor("x")
    weights = make.constant("kernel", kernel, like)
    product = make.again(linear, *([match.tensor("sizes"), weights, data] if match.has("sizes") else [data, weights]))
    return product if bias is None else add_bias(make, linear, product, bias, like)


def add_bias(make: Maker, linear: Node, product: Tensor, bias: Vector, like: NDArray[Any]) -> Tensor:
    """Add a BiasAdd after a linear operation, in its data format."""
    layout = "NCHW" if channel_axis(linear) == 1 and linear.op != "MatMul" else "NHWC"
    return make.node("BiasAdd", product, make.constant("bias", bias, like), like=linear, data_format=layout)


def _axes(linear: Node) -> tuple[int, ...]:
    if linear.op == "MatMul":
        return (0,) if attr(linear, "transpose_b") else (-1,)
    if linear.op == "DepthwiseConv2dNative":
        return (-2, -1)
    return (-2,) if linear.op in TRANSPOSED else (-1,)
