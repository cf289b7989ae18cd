"""Reasons against joining two constants of a graph into one."""

import numpy as np
from numpy.typing import NDArray

MIN_SUM = 1e-3  # smallest sum of two floats, as a fraction of the larger summand


def growth_refusal(first: NDArray[np.generic], second: NDArray[np.generic]) -> str | None:
    """Return why the joined constant would be larger than both, or has no shape; None if neither is so."""
    try:
        size = int(np.prod(np.broadcast_shapes(first.shape, second.shape)))
    except ValueError:
        return "the shapes of the constants cannot be broadcast"
    return "the joined constant would be larger" if size > max(first.size, second.size) else None


def range_refusal(joined: NDArray[np.generic], dtype: np.dtype[np.generic]) -> str | None:
    """Return why a joined constant of floats, computed in float64, does not fit its type; None if it does."""
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(joined.astype(dtype).astype(np.float64)).all()
    return None if is_finite else "the joined constant would not be finite"


def cancellation_refusal(
    first: NDArray[np.generic], second: NDArray[np.generic], joined: NDArray[np.generic]
) -> str | None:
    """Return why the sum of two constants of floats is far smaller than they are; None if it is not."""
    one, other, total = (np.abs(array.astype(np.float64)) for array in (first, second, joined))
    if np.any(total < MIN_SUM * np.maximum(one, other)):
        return "the constants cancel, and the result would be rounded differently"
    return None
