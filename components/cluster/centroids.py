"""One-dimensional k-means clustering of weights, with three initializations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MAX_ITERATIONS = 100  # k-means converges long before


def share(weights: Array, clusters: int, initialization: str, *, keep_zeros: bool, seed: int) -> Array:
    """Return weights of any shape with at most ``clusters`` distinct values, each the mean of those that it replaces.

    The initialization is ``linear``, ``kmeans_plus_plus``, which depends on the seed, or ``density``. With
    ``keep_zeros`` weights that are zero stay zero, and no others become zero; zero is then one of the distinct values.

    >>> share(np.array([0.0, 0.9, 1.1, -2.0, 0.0]), 3, "linear", keep_zeros=True, seed=0)
    array([ 0.,  1.,  1., -2.,  0.])
    """
    flat = weights.ravel()
    zero = flat == 0 if keep_zeros else np.zeros(flat.shape, bool)
    nonzero = flat[~zero].astype(np.float64)
    if not nonzero.size:
        return weights.copy()
    start = INITIALIZATIONS[initialization](nonzero, clusters - bool(zero.any()), np.random.default_rng(seed))
    values = np.zeros_like(flat)
    values[~zero] = _cluster(nonzero, np.unique(start)).astype(flat.dtype)
    return values.reshape(weights.shape)


def _cluster(weights: Array, values: Array) -> Array:
    """Run Lloyd's iteration: assign each weight to the nearest value, set each value to the mean of its weights."""
    for _ in range(MAX_ITERATIONS):
        assignment = np.searchsorted((values[1:] + values[:-1]) / 2, weights)
        counts = np.bincount(assignment, minlength=len(values))
        means = np.bincount(assignment, weights, minlength=len(values))[counts > 0] / counts[counts > 0]
        if len(means) == len(values) and np.array_equal(means, values):
            break
        values = means
    return np.asarray(values[np.searchsorted((values[1:] + values[:-1]) / 2, weights)])


def _linear(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    return np.linspace(weights.min(), weights.max(), clusters) if clusters > 1 else weights.mean(keepdims=True)


def _kmeans_plus_plus(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    """Draw weights, each with a probability proportional to the squared distance to the nearest one drawn before."""
    values = [random.choice(weights)]
    distance = (weights - values[0]) ** 2
    while len(values) < clusters and distance.any():
        values.append(random.choice(weights, p=distance / distance.sum()))
        distance = np.minimum(distance, (weights - values[-1]) ** 2)
    return np.array(values)


def _density(weights: Array, clusters: int, random: np.random.Generator) -> Array:
    """Return the medians of equally large parts of the sorted weights."""
    return np.asarray(np.quantile(weights, (np.arange(clusters) + 0.5) / clusters))


INITIALIZATIONS = {"linear": _linear, "kmeans_plus_plus": _kmeans_plus_plus, "density": _density}
