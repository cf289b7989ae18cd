"""The theorem: a batch norm right after a layer that is linear in each output channel vanishes into its weights.

In inference a batch norm is a line per channel, since the mean and variance it met in training are constants there:

    bn(y) = gamma (y - mean) / sqrt(variance + epsilon) + beta = s y + t
        s = gamma / sqrt(variance + epsilon)
        t = beta - s mean
    bn(x * K + b) = s (x * K + b) + t = x * (s K) + (s b + t)

    before    x -> layer(K, b) -> batch norm(gamma, beta, mean, variance, epsilon) -> y
    after     x -> layer(s K, s b + t) -> y

It holds for any padding, stride, dilation and number of groups, for s negative or zero, and again for a second batch
norm after the first. Needs:
- the moving statistics (a batch norm called with ``training=True`` has no constants), positive under the root;
- nothing between the two, not even the layer's own activation, and nobody else who reads what is between;
- the batch norm's axis is the axis of the layer's output channels;
- a layer and a batch norm that are each called once: shared weights would change for the other calls too.

The channel's number s multiplies the part of K that makes the channel; which axes of the kernel those are follows from
the layouts of TensorFlow's ops (tf.nn.conv2d, tf.nn.depthwise_conv2d, tf.nn.separable_conv2d, tf.nn.conv2d_transpose):

    Conv1D, 2D, 3D             [*window, in / groups, out]         the last axis
    Conv1D, 2D, 3DTranspose    [*window, out, in]                  the last but one
    DepthwiseConv1D, 2D        [*window, in, multiplier]           the last two: channel number in * multiplier + m
    SeparableConv1D, 2D        [*ones, in * multiplier, out]       the last axis of the pointwise kernel
    Dense                      [in, out]                           the last axis

Folding is what Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (CVPR 2018, section 3.2) do before quantizing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = list[NDArray[Any]]

CHANNEL_AXES = {
    "Conv1D": (-1,),
    "Conv2D": (-1,),
    "Conv3D": (-1,),
    "Conv1DTranspose": (-2,),
    "Conv2DTranspose": (-2,),
    "Conv3DTranspose": (-2,),
    "DepthwiseConv1D": (-2, -1),
    "DepthwiseConv2D": (-2, -1),
    "SeparableConv1D": (-1,),
    "SeparableConv2D": (-1,),
    "Dense": (-1,),
}


@dataclass(frozen=True)
class Line:
    """What a batch norm does in inference: ``scale * y + shift``, a number of each per channel, in float64."""

    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


def line(
    *,
    gamma: NDArray[Any] | None,
    beta: NDArray[Any] | None,
    mean: NDArray[Any],
    variance: NDArray[Any],
    epsilon: float,
) -> Line:
    """Return the line of a batch norm; gamma is 1 and beta is 0 where the layer has none.

    >>> line(gamma=None, beta=None, mean=np.array([3.0]), variance=np.array([3.75]), epsilon=0.25)
    Line(scale=array([0.5]), shift=array([-1.5]))
    """
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    scale = (1.0 if gamma is None else gamma.astype(np.float64)) / np.sqrt(variance + epsilon)
    shift = (0.0 if beta is None else beta.astype(np.float64)) - scale * mean
    return Line(scale, shift)


def fold(weights: Weights, after: Line, axes: Sequence[int]) -> Weights:
    """Return a layer's weights in float64 with the line folded in.

    Args:
        weights: As the layer lists them; the last two are the kernel that makes the channels, and the bias.
        after: The line.
        axes: Which axes of that kernel, counted from its end, make up the channels.

    >>> fold([np.ones((1, 2)), np.array([1.0, 1.0])], Line(np.array([2.0, -3.0]), np.array([0.5, 0.0])), (-1,))
    [array([[ 2., -3.]]), array([ 2.5, -3. ])]
    """
    *others, kernel, bias = weights
    sizes = [size if axis - kernel.ndim in axes else 1 for axis, size in enumerate(kernel.shape)]
    folded = kernel.astype(np.float64) * after.scale.reshape(sizes)
    return [*others, folded, after.scale * bias.astype(np.float64) + after.shift]
