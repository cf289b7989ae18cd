"""Masks of zeros in a kernel (by magnitude, in groups of M, in blocks), and the sparsity of each training step.

Each mask is the one that TensorFlow's pruning toolkit computes for the same weights, bit for bit (but see
`block_mask`); a test compares them. Ties between weights of equal magnitude are broken by position, so that the
sparsity is exact.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.prune.parameters import Pattern

Array = NDArray[Any]
UPDATES = 32  # of the masks, from dense to the final sparsity; more take longer and change nothing
POWER = 3


def draw_mask(weights: Array, pattern: Pattern, sparsity: float, axis: int) -> Array:
    """Return a float32 mask in the weights' shape: 1 for weights that remain, 0 for pruned ones.

    For ``block`` the weights are a matrix, apart from dimensions of size 1. ``n_m`` groups weights along the axis, that
    of the input channels; it does not use the sparsity, the fraction of zeros.
    """
    if pattern.name == "n_m":
        return n_m_mask(weights, *pattern.ratio, axis)
    if pattern.name == "block":
        return block_mask(weights, sparsity, *pattern.block)
    return magnitude_mask(weights, sparsity)


def magnitude_mask(weights: Array, sparsity: float) -> Array:
    """Select the largest weights.

    >>> magnitude_mask(np.array([[1.0, -4.0], [3.0, 2.0]]), 0.5)
    array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    count = max(1, int(np.round(np.float32(weights.size) * (np.float32(1) - np.float32(sparsity)))))
    order = np.argsort(-np.abs(weights).ravel(), kind="stable")
    mask = np.zeros(weights.size, np.float32)
    mask[order[:count]] = 1
    return mask.reshape(weights.shape)


def n_m_mask(weights: Array, n: int, m: int, axis: int) -> Array:
    """Select the n largest of every m adjacent weights along an axis, whose size is divisible by m."""
    last = np.moveaxis(weights, axis, -1)
    groups = np.abs(last).reshape(-1, m)
    mask = np.zeros_like(groups, np.float32)
    np.put_along_axis(mask, np.argsort(-groups, axis=1, kind="stable")[:, :n], 1, axis=1)
    return np.moveaxis(mask.reshape(last.shape), -1, axis)


def block_mask(weights: Array, sparsity: float, height: int, width: int) -> Array:
    """Select the blocks with the largest mean magnitude; blocks at the edge may be smaller.

    If more than one row or column is left at the edge, the toolkit evaluates other blocks than those it sets to zero
    (its pooling pads on both sides); the blocks here are the correct ones.
    """
    rows, columns = as_matrix(weights.shape)
    matrix = np.abs(weights).reshape(rows, columns)
    padded = np.pad(matrix.astype(np.float64), ((0, -rows % height), (0, -columns % width)), constant_values=np.nan)
    tiles = padded.reshape(padded.shape[0] // height, height, padded.shape[1] // width, width)
    selected = magnitude_mask(np.nanmean(tiles, axis=(1, 3)), sparsity)
    return np.kron(selected, np.ones((height, width), np.float32))[:rows, :columns].reshape(weights.shape)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without dimensions of size 1, unless it has two dimensions.

    >>> as_matrix((1, 1, 8, 16)), as_matrix((8, 1)), as_matrix((3, 3, 8, 16))
    ((8, 16), (8, 1), (3, 3, 8, 16))
    """
    return shape if len(shape) == 2 else tuple(size for size in shape if size > 1)


@dataclass(frozen=True)
class Schedule:
    """Sparsity by training step, counted from 1. After ``end`` the masks do not change.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", 2017, equation 1: cubic growth.
    """

    goal: float  # the final sparsity, from 0 to 1
    end: int  # last step at which masks are updated; 1 if they are updated once
    frequency: int  # number of steps between two updates

    def is_due(self, step: int) -> bool:
        """Return True if masks are updated before this step."""
        return step <= self.end and (step - 1) % self.frequency == 0

    def sparsity(self, step: int) -> float:
        """Return the fraction of zeros from this step on."""
        if self.end == 1:
            return self.goal
        left = 1 - min(step - 1, self.end - 1) / (self.end - 1)
        return self.goal * (1 - left**POWER)


def plan_schedule(kind: str, goal: float, *, steps: int) -> Schedule:
    """Return the schedule of a fine-tuning with this number of steps.

    ``constant`` prunes once, before the first step. ``polynomial`` reaches the goal after half of the steps.

    >>> plan_schedule("polynomial", 0.8, steps=1000)
    Schedule(goal=0.8, end=481, frequency=15)
    """
    frequency = max(1, steps // 2 // UPDATES)
    rise = min(UPDATES, steps // 2) * frequency
    return Schedule(goal, 1 if kind == "constant" or not rise else rise + 1, frequency)
