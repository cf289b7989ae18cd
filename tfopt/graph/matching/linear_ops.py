"""Linear operations with a kernel: their channels, the kernel axes of these, and folds of constants into the weights.

The scale of a channel multiplies the part of the kernel that produces or reads it (layouts of tf.raw_ops):

                                                kernel                       produced by    read by
    Conv2D, Conv3D                              [*window, in / groups, out]  axis -1        axis -2, in groups
    DepthwiseConv2dNative                       [h, w, in, multiplier]       -2 and -1      -2
    Conv2DBackpropInput, Conv3DBackpropInputV2  [*window, out, in]           -2             -1
    MatMul                                      [in, out], or transposed     -1, or -2      -2, or -1

Output o of group g reads the inputs g * in / groups + i. A depthwise convolution produces in * multiplier + m.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import LocalLaw, Maker, Match, Node, Op, Tensor, attr, computed_law, const, one_of, op

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
INPUT_REFUSED = "the number of input channels is not known, or they are not one axis"


class Weights(NamedTuple):
    """The weights of a linear operation after a fold: a new kernel unless it stays, and a bias unless there is none."""

    kernel: NDArray[np.float64] | None
    bias: Vector | None = None


def folding_law(patterns: tuple[Op, ...], fold: Callable[[Match], Weights | str], **facts: Any) -> LocalLaw:
    """Return a law that replaces a linear operation, and what is next to it, by one with other weights.

    It has the role ``linear``, or is the root. ``fold`` returns the weights, or why there are none.
    """
    return computed_law(patterns, fold, _with_weights, **facts)


def existing_bias(match: Match) -> Vector | str:
    """Return the bias per channel after the linear operation of a match, zeros without one; or why it is no vector."""
    if not match.has("add"):
        return np.zeros(channels(match))
    bias = along_channels(match, match.node("add"), "existing bias")
    return "the bias before it is not one number per channel" if bias is None else bias


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
    return int(np.prod([match.array("kernel").shape[axis] for axis in output_axes(match.node("linear"))]))


def scaled(match: Match, scale: Vector) -> NDArray[np.float64]:
    """Return the kernel with the part of each output channel multiplied by its scale."""
    kernel, axes = match.array("kernel"), output_axes(match.node("linear"))
    sizes = [size if axis - kernel.ndim in axes or axis in axes else 1 for axis, size in enumerate(kernel.shape)]
    return kernel.astype(np.float64) * scale.reshape(sizes)


def range_refusal(match: Match, *arrays: NDArray[Any] | None) -> str | None:
    """Return why new weights, if they are not None, do not fit the kernel's dtype; integers would wrap around."""
    dtype = match.array("kernel").dtype
    if dtype.name not in FLOATS:
        return f"the weights are {dtype.name}"
    with np.errstate(over="ignore"):
        weights = (array.astype(dtype).astype(np.float64) for array in arrays if array is not None)
        fits = all(np.isfinite(array).all() for array in weights)
    return None if fits else f"the weights would not be finite in {dtype.name}"


def input_channels(match: Match, data: str = "x") -> int | None:
    """Return the number of input channels of the root of a match; None if it or their axis is unknown."""
    linear, axis = match.node(), input_axis(match.node())
    if linear.op == "MatMul" and match.attr("transpose_a"):
        return None
    if axis is not None:
        return int(match.array("kernel").shape[axis])
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
    kernel, axis = match.array("kernel").astype(np.float64), input_axis(match.node())
    if axis is not None:
        return kernel * (vector if axis == -1 else vector[:, None])
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
        return np.asarray(products.sum(input_axis(match.node())))
    if match.node().op == "DepthwiseConv2dNative":
        return np.asarray(products.sum((0, 1)).ravel())
    return np.asarray(products.sum(tuple(range(products.ndim - 1))))


def _with_weights(match: Match, make: Maker, weights: Weights) -> Tensor:
    """Add the linear operation again, with a BiasAdd in its data format if there is a bias."""
    linear, like = match.node("linear" if match.has("linear") else "root"), match.array("kernel")
    kernel = match.tensor("kernel") if weights.kernel is None else make.constant("kernel", weights.kernel, like)
    inputs = [kernel, match.tensor("x")] if match.has("sizes") else [match.tensor("x"), kernel]
    product = make.again(linear, *([match.tensor("sizes")] if match.has("sizes") else []), *inputs)
    if weights.bias is None:
        return product
    layout = "NCHW" if channel_axis(linear) == 1 and linear.op != "MatMul" else "NHWC"
    return make.node("BiasAdd", product, make.constant("bias", weights.bias, like), like=linear, data_format=layout)


def input_axis(linear: Node) -> int | None:
    """Return the kernel axis of the input channels; None for a convolution, which may have groups."""
    if linear.op == "MatMul":
        return -1 if attr(linear, "transpose_b") else -2
    return {"DepthwiseConv2dNative": -2, **dict.fromkeys(TRANSPOSED, -1)}.get(linear.op)


def output_axes(linear: Node) -> tuple[int, ...]:
    """Return the kernel axes of the output channels."""
    if linear.op == "MatMul":
        return (0,) if attr(linear, "transpose_b") else (-1,)
    if linear.op == "DepthwiseConv2dNative":
        return (-2, -1)
    return (-2,) if linear.op in TRANSPOSED else (-1,)
