"""Detect zeros and shared values in a kernel, and preserve them by a projection after each training step."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Array = NDArray[Any]
MAX_VALUES = 256  # of a kernel with shared weights
MIN_WEIGHTS_PER_VALUE = 4  # on average, for weights to count as shared
MIN_ZEROS = 0.05  # fraction of a kernel's weights; fewer zeros occur without pruning


def is_clustered(kernel: Array) -> bool:
    """Return True if the weights of the kernel share a few values."""
    values = len(np.unique(kernel))
    return 1 < values <= min(MAX_VALUES, kernel.size // MIN_WEIGHTS_PER_VALUE)


def is_sparse(kernel: Array) -> bool:
    """Return True if at least 5 % of the weights are exactly zero, but not all: the kernel was pruned."""
    zeros = float((kernel == 0).mean())
    return MIN_ZEROS <= zeros < 1


def is_n_m(weights: Array, n: int, m: int, axis: int) -> bool:
    """Return True if at most n of every m adjacent weights along an axis are not zero."""
    last = np.moveaxis(weights, axis, -1)
    return last.shape[-1] % m == 0 and bool((np.count_nonzero(last.reshape(-1, m), axis=1) <= n).all())


class Projection:
    """A weight constraint that restores zeros and shared values of a kernel after each training step.

    The shared value becomes the mean of its weights: for gradient descent this is a step along the mean of their
    gradients. A value of zero stays zero.
    """

    def __init__(self, kernel: Array, *, zeros: bool, clusters: bool) -> None:
        """Record the zeros of a kernel, the groups of weights with the same value (``clusters``), or both."""
        self.mask = (kernel != 0).astype(kernel.dtype) if zeros else None
        self.groups = self.counts = None
        if clusters:
            _, groups, self.counts = np.unique(kernel.ravel(), return_inverse=True, return_counts=True)
            self.groups = groups.astype(np.int32)

    def __call__(self, kernel: Any) -> Any:
        """Return the nearest kernel with the recorded zeros and groups."""
        values = tf.convert_to_tensor(kernel)
        if self.groups is not None and self.counts is not None:
            sums = tf.math.unsorted_segment_sum(tf.reshape(values, [-1]), self.groups, len(self.counts))
            means = sums / tf.constant(self.counts, values.dtype)
            values = tf.reshape(tf.gather(means, self.groups), values.shape)
        return values if self.mask is None else values * tf.constant(self.mask, values.dtype)


def add_projection(kernel: Any, projection: Projection) -> None:
    """Make the optimizer apply a projection to a variable after each step, after the user's own constraint.

    The variable is one of Keras 3 or, for Keras 2, of TensorFlow.
    """
    own = kernel.constraint

    def both(values: Any) -> Any:
        return projection(own(values) if own else values)

    if isinstance(kernel, tf.Variable):
        kernel._constraint = both  # the property has no setter; Keras 2's optimizers read the attribute
    else:
        kernel.constraint = both
