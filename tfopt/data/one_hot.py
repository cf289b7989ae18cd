"""Recognize one-hot labels: one value for each class, exactly one 1 and the others 0."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_one_hot(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each record whether exactly one of its values is 1 and the others are 0.

    >>> is_one_hot(np.array([[0, 1], [1, 1], [0, 0], [0.5, 0.5]])).tolist()
    [True, False, False, False]
    """
    return np.asarray(np.isin(labels, (0, 1)).all(1) & (np.equal(labels, 1).sum(1) == 1))
