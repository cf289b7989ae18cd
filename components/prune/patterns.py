"""Which weights stay: a mask for a kernel, by magnitude, in groups of M, or in blocks.

Each is the mask that TensorFlow's pruning toolkit draws for the same weights, to the bit (but see `blocks`); a test
says so. Weights of equal magnitude are told apart by their place, so that the sparsity is what was asked for.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.components.prune.pattern import Pattern

Array = NDArray[Any]


def mask(weights: Array, pattern: Pattern, sparsity: float, axis: int) -> Array:
    """Return 1 for weights that stay and 0 for others, in the weights' shape.

    Args:
        weights: Of any shape; a matrix, when sizes of 1 are left out, for ``block``.
        pattern: What zeros may lie where.
        sparsity: The part that goes; the ratio's own for ``n_m``.
        axis: Of the input channels, along which ``n_m`` counts its neighbours.
    """
    if pattern.name == "n_m":
        return n_m(weights, *pattern.ratio, axis)
    if pattern.name == "block":
        return blocks(weights, sparsity, *pattern.block)
    return magnitude(weights, sparsity)


def magnitude(weights: Array, sparsity: float) -> Array:
    """Keep the largest.

    >>> magnitude(np.array([[1.0, -4.0], [3.0, 2.0]]), 0.5)
    array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    kept = max(1, int(np.round(np.float32(weights.size) * (np.float32(1) - np.float32(sparsity)))))
    order = np.argsort(-np.abs(weights).ravel(), kind="stable")
    mask = np.zeros(weights.size, np.float32)
    mask[order[:kept]] = 1
    return mask.reshape(weights.shape)


def n_m(weights: Array, n: int, m: int, axis: int) -> Array:
    """Keep the n largest of every m neighbours along an axis, whose size m divides."""
    last = np.moveaxis(weights, axis, -1)
    groups = np.abs(last).reshape(-1, m)
    mask = np.zeros_like(groups, np.float32)
    np.put_along_axis(mask, np.argsort(-groups, axis=1, kind="stable")[:, :n], 1, axis=1)
    return np.moveaxis(mask.reshape(last.shape), -1, axis)


def blocks(weights: Array, sparsity: float, height: int, width: int) -> Array:
    """Keep the blocks with the largest mean; at the edge a block is what is left of it.

    Where more than one row or column is left over, the toolkit looks at blocks beside those that it sets to zero (its
    pooling pads on both sides); these are the right ones.
    """
    rows, columns = as_matrix(weights.shape)
    matrix = np.abs(weights).reshape(rows, columns)
    padded = np.pad(matrix.astype(np.float64), ((0, -rows % height), (0, -columns % width)), constant_values=np.nan)
    tiles = padded.reshape(padded.shape[0] // height, height, padded.shape[1] // width, width)
    kept = magnitude(np.nanmean(tiles, axis=(1, 3)), sparsity)
    return np.kron(kept, np.ones((height, width), np.float32))[:rows, :columns].reshape(weights.shape)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape as a matrix where it is one, sizes of 1 left out.

    >>> as_matrix((1, 1, 8, 16)), as_matrix((8, 1)), as_matrix((3, 3, 8, 16))
    ((8, 16), (8, 1), (3, 3, 8, 16))
    """
    return shape if len(shape) == 2 else tuple(size for size in shape if size > 1)


def is_n_m(weights: Array, n: int, m: int, axis: int) -> bool:
    """Whether at most n of every m neighbours along an axis are not zero."""
    last = np.moveaxis(weights, axis, -1)
    return last.shape[-1] % m == 0 and bool((np.count_nonzero(last.reshape(-1, m), axis=1) <= n).all())
