"""The ends of 8-bit ranges.

A file has the range of each activation, as a scale and a zero point, or as two limits. A value at an end is one that
was cut off, or nearly. An end that stands for zero is not counted, since a ReLU cuts off there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shares = dict[str, float]
# Operations with a range that is fixed: no data changes it.
FIXED = {"SOFTMAX", "LOGISTIC", "TANH", "L2_NORMALIZATION", "LOG_SOFTMAX", "Softmax", "SoftMax", "Sigmoid", "Tanh"}


@dataclass(frozen=True)
class Levels:
    """The levels of an activation that stand for the ends of its range."""

    name: str
    ends: tuple[int, ...]

    @classmethod
    def of(cls, name: str, dtype: Any, zero_point: int) -> "Levels":
        """Return the levels of a dtype."""
        limits = np.iinfo(dtype)
        lowest = -int(limits.max) if zero_point == 0 and limits.min else int(limits.min)  # symmetric
        return cls(name, tuple(end for end in (lowest, int(limits.max)) if end != zero_point))

    def share(self, values: NDArray[Any]) -> float:
        """Return the share of values at the ends, or beyond the lower one."""
        at_ends = [values <= end if end < 0 else values == end for end in self.ends]
        return float(np.mean(np.any(at_ends, axis=0))) if values.size else 0.0
