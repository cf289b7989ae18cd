"""Linear operations with a kernel: the input channels, and the part of the kernel that reads each of them.

Conv2D, Conv3D           [*window, in / groups, out]   output o of group g reads the inputs g * in / groups + i
DepthwiseConv2dNative    [h, w, in, multiplier]        the last but one
Conv2DBackpropInput, …   [*window, out, in]            the last
MatMul                   [in, out], or transposed      the first, or the last
"""

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Match
from tfopt.graph.matching.linear_ops import RANKS, TRANSPOSED, Vector, as_vector, channel_axis

INPUT_REFUSED = "the number of input channels is not known, or they are not one axis"


def input_channels(match: Match, data: str = "x") -> int | None:
    """Return the number of input channels of the root of a match; None if it or their axis is unknown."""
    linear, kernel = match.node(), match.array("kernel")
    if linear.op == "MatMul" and match.attr("transpose_a"):
        return None
    if linear.op == "MatMul":
        return int(kernel.shape[1 if match.attr("transpose_b") else 0])
    if linear.op == "DepthwiseConv2dNative":
        return int(kernel.shape[2])
    if linear.op in TRANSPOSED:
        return int(kernel.shape[-1])
    shape = match.shape(data)
    return shape[channel_axis(linear)] if shape and len(shape) == RANKS.get(linear.op, 4) else None


def vector_before(match: Match, role: str) -> Vector | None:
    """Return the constant before the root as a vector ``[input channels]``; see `as_vector`."""
    array, linear, count, shape = match.array(role), match.node(), input_channels(match), match.shape("x")
    elementwise = match.node("add") if match.has("add") else match.node("mul")
    vector = None if count is None else as_vector(array, elementwise, linear, count)
    if vector is None or elementwise.op == "BiasAdd":
        return vector
    rank = RANKS.get(linear.op, 4)
    if shape is None or len(shape) != rank or (array.size > 1 and shape[channel_axis(linear)] != count):
        return None  # broadcasting with the constant may have produced the shape
    return vector


def times_inputs(match: Match, vector: Vector) -> NDArray[np.float64]:
    """Return the kernel of the root with the part that reads each input channel multiplied by the channel's number."""
    kernel, linear = match.array("kernel").astype(np.float64), match.node()
    if linear.op == "MatMul":
        return kernel * (vector[None, :] if match.attr("transpose_b") else vector[:, None])
    if linear.op == "DepthwiseConv2dNative":
        return kernel * vector[:, None]
    if linear.op in TRANSPOSED:
        return kernel * vector
    *_, group_size, out = kernel.shape
    by_group = vector.reshape(-1, group_size)  # [groups, in / groups]
    return kernel * np.repeat(by_group, out // len(by_group), axis=0).T


def shift_refusal(match: Match) -> str | None:
    """Return why a bias before the root is not equivalent to one after it, or None."""
    if match.node().op == "MatMul" or match.attr("padding") == "VALID":
        return None
    window = match.array("kernel").shape[: RANKS.get(match.node().op, 4) - 2]
    unpadded = set(window) == {1} and match.attr("padding") == "SAME"  # EXPLICIT pads windows of 1 too
    return None if unpadded else "the zeros of the padding do not have the bias"


def bias_of(match: Match, vector: Vector) -> Vector:
    """Return the output of the root, one number per channel, for a constant number per input channel."""
    products = times_inputs(match, vector)
    if match.node().op == "MatMul":
        return np.asarray(products.sum(1 if match.attr("transpose_b") else 0))
    if match.node().op == "DepthwiseConv2dNative":
        return np.asarray(products.sum((0, 1)).ravel())
    return np.asarray(products.sum(tuple(range(products.ndim - 1))))
