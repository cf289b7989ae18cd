"""The few values that stand for many weights: k-means in one dimension, from one of three starts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROUNDS = 100  # k-means settles long before


def share(weights: Array, clusters: int, initialization: str, *, keep_zeros: bool, seed: int) -> Array:
    """Return the weights with at most so many distinct values, each the mean of those it stands for.

    Args:
        weights: Of any shape.
        clusters: Distinct values, at least 2, zero among them where zeros are kept.
        initialization: ``linear``, ``kmeans_plus_plus`` or ``density``.
        keep_zeros: Weights that are zero stay so, and no others become zero.
        seed: Draws the start of k-means++.

    >>> share(np.array([0.0, 0.9, 1.1, -2.0, 0.0]), 3, "linear", keep_zeros=True, seed=0)
    array([ 0.,  1.,  1., -2.,  0.])
    """
    flat = weights.ravel()
    zero = flat == 0 if keep_zeros else np.zeros(flat.shape, bool)
    moved = flat[~zero].astype(np.float64)
    if not moved.size:
        return weights.copy()
    start = INITIALIZATIONS[initialization](moved, clusters - bool(zero.any()), np.random.default_rng(seed))
    values = np.zeros_like(flat)
    values[~zero] = _settle(moved, np.unique(start)).astype(flat.dtype)
    return values.reshape(weights.shape)


def _settle(weights: Array, values: Array) -> Array:
    """Lloyd's iteration: each weight takes the nearest value, each value the mean of its weights, until none moves."""
    for _ in range(ROUNDS):
        places = np.searchsorted((values[1:] + values[:-1]) / 2, weights)
        counts = np.bincount(places, minlength=len(values))
        means = np.bincount(places, weights, minlength=len(values))[counts > 0] / counts[counts > 0]
        if len(means) == len(values) and np.array_equal(means, values):
            break
        values = means
    return np.asarray(values[np.searchsorted((values[1:] + values[:-1]) / 2, weights)])


def _linear(weights: Array, clusters: int, draw: np.random.Generator) -> Array:
    return np.linspace(weights.min(), weights.max(), clusters) if clusters > 1 else weights.mean(keepdims=True)


def _kmeans_plus_plus(weights: Array, clusters: int, draw: np.random.Generator) -> Array:
    """Each value is a weight, drawn with a chance that grows with the square of its distance to those drawn before."""
    values = [draw.choice(weights)]
    distance = (weights - values[0]) ** 2
    while len(values) < clusters and distance.any():
        values.append(draw.choice(weights, p=distance / distance.sum()))
        distance = np.minimum(distance, (weights - values[-1]) ** 2)
    return np.array(values)


def _density(weights: Array, clusters: int, draw: np.random.Generator) -> Array:
    """The middle of each part, when the sorted weights are cut into parts of one size."""
    return np.asarray(np.quantile(weights, (np.arange(clusters) + 0.5) / clusters))


INITIALIZATIONS = {"linear": _linear, "kmeans_plus_plus": _kmeans_plus_plus, "density": _density}
