"""Zeros and shared values in a kernel: seen in its weights, and kept exact by a projection after each training step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_VALUES = 256  # that a kernel with shared weights has
SHARED_BY = 4  # weights at least to each value, on average
LEAST_ZEROS = 0.05  # of a kernel's weights; fewer came about by chance


def is_clustered(kernel: Array) -> bool:
    """Whether the kernel gets by with a few values."""
    values = len(np.unique(kernel))
    return 1 < values <= min(MOST_VALUES, kernel.size // SHARED_BY)


def is_sparse(kernel: Array) -> bool:
    """Whether so many weights are exactly zero that somebody pruned them, but not all."""
    zeros = float((kernel == 0).mean())
    return LEAST_ZEROS <= zeros < 1


class Projection:
    """A constraint for a kernel: after each step zeros are zero again, and weights that shared a value share one again.

    The shared value becomes the mean of its weights: for gradient descent this is the step along the mean of their
    gradients. A value of zero stays zero.
    """

    def __init__(self, kernel: Array, *, zeros: bool, clusters: bool) -> None:
        """Take what is to be kept from the kernel as it is now.

        Args:
            kernel: Its values.
            zeros: Keep those that are zero.
            clusters: Keep weights together that have the same value.
        """
        self.mask = (kernel != 0).astype(kernel.dtype) if zeros else None
        self.places = self.counts = None
        if clusters:
            _, places, self.counts = np.unique(kernel.ravel(), return_inverse=True, return_counts=True)
            self.places = places.astype(np.int32)

    def __call__(self, kernel: Any) -> Any:
        """Return the nearest values with the same zeros and the same weights shared."""
        import tensorflow as tf

        values = tf.convert_to_tensor(kernel)
        if self.places is not None and self.counts is not None:
            sums = tf.math.unsorted_segment_sum(tf.reshape(values, [-1]), self.places, len(self.counts))
            means = sums / tf.constant(self.counts, values.dtype)
            values = tf.reshape(tf.gather(means, self.places), values.shape)
        return values if self.mask is None else values * tf.constant(self.mask, values.dtype)


class Also:
    """Two constraints, one after the other."""

    def __init__(self, first: Any, second: Any) -> None:
        """Keep both; the first may be None."""
        self.first, self.second = first, second

    def __call__(self, kernel: Any) -> Any:
        """Apply both."""
        return self.second(self.first(kernel) if self.first else kernel)


def keep(kernel: Any, projection: Projection) -> None:
    """Let the optimizer apply a projection to a variable after each step, after the user's own constraint.

    Args:
        kernel: A variable of Keras 3 or, for Keras 2, of TensorFlow.
        projection: What is to be kept.
    """
    import tensorflow as tf

    both = Also(kernel.constraint, projection)
    if isinstance(kernel, tf.Variable):
        kernel._constraint = both  # its property cannot be set; Keras 2's optimizers read it all the same
    else:
        kernel.constraint = both
