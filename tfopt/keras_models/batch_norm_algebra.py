"""Fold a batch norm into the weights of the layer before it, which is linear in each output channel.

In inference a batch norm is an affine function of each channel, because the moving mean and variance are constants:

    bn(y) = gamma (y - mean) / sqrt(variance + epsilon) + beta = scale y + bias
        scale = gamma / sqrt(variance + epsilon)
        bias = beta - scale mean
    bn(x * K + b) = scale (x * K + b) + bias = x * (scale K) + (scale b + bias)

    before    x -> layer(K, b) -> batch norm(gamma, beta, mean, variance, epsilon) -> y
    after     x -> layer(scale K, scale b + bias) -> y

It holds for any padding, stride, dilation and number of groups, for a negative or zero scale, and again for a second
batch norm after the first.

Requires (`batch_norm_plan` checks each):
- moving statistics (a batch norm called with ``training=True`` has no constants), and variance + epsilon > 0;
- no operation between the two, not even the layer's own activation, and no other reader of the tensor between them;
- the batch norm's axis is the axis of the layer's output channels;
- both are called once: shared weights would change for the other calls too.

The scale of a channel multiplies the part of K that produces the channel. The axes follow from the kernel layouts of
TensorFlow's ops (tf.nn.conv2d, tf.nn.depthwise_conv2d, tf.nn.separable_conv2d, tf.nn.conv2d_transpose):

    Conv1D, 2D, 3D             [*window, in / groups, out]         the last axis
    Conv1D, 2D, 3DTranspose    [*window, out, in]                  the last but one
    DepthwiseConv1D, 2D        [*window, in, multiplier]           the last two: channel number in * multiplier + m
    SeparableConv1D, 2D        [*ones, in * multiplier, out]       the last axis of the pointwise kernel
    Dense                      [in, out]                           the last axis

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018, section 3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = list[NDArray[Any]]

CHANNEL_AXES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D", "SeparableConv1D", "SeparableConv2D", "Dense"), (-1,)),
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), (-2,)),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), (-2, -1)),
}


@dataclass(frozen=True)
class Affine:
    """The function ``scale * y + bias`` of each channel: float64 arrays ``[channels]``."""

    scale: NDArray[np.float64]
    bias: NDArray[np.float64]


def batch_norm_affine(
    *,
    gamma: NDArray[Any] | None,
    beta: NDArray[Any] | None,
    mean: NDArray[Any],
    variance: NDArray[Any],
    epsilon: float,
) -> Affine:
    """Return the affine function of a batch norm; gamma is 1 and beta is 0 if the layer has none.

    >>> batch_norm_affine(gamma=None, beta=None, mean=np.array([3.0]), variance=np.array([3.75]), epsilon=0.25)
    Affine(scale=array([0.5]), bias=array([-1.5]))
    """
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    scale = (1.0 if gamma is None else gamma.astype(np.float64)) / np.sqrt(variance + epsilon)
    bias = (0.0 if beta is None else beta.astype(np.float64)) - scale * mean
    return Affine(scale, bias)


def fold(weights: Weights, affine: Affine, axes: Sequence[int]) -> Weights:
    """Return a layer's weights, float64, with an affine function of its output folded in.

    Args:
        weights: In the layer's order; the last two are the kernel that produces the channels, and the bias.
        affine: The function of each channel.
        axes: The channel axes of that kernel, counted from its end.

    >>> fold([np.ones((1, 2)), np.array([1.0, 1.0])], Affine(np.array([2.0, -3.0]), np.array([0.5, 0.0])), (-1,))
    [array([[ 2., -3.]]), array([ 2.5, -3. ])]
    """
    *others, kernel, bias = weights
    sizes = [size if axis - kernel.ndim in axes else 1 for axis, size in enumerate(kernel.shape)]
    folded = kernel.astype(np.float64) * affine.scale.reshape(sizes)
    return [*others, folded, affine.scale * bias.astype(np.float64) + affine.bias]
