"""Determine the batch size or number of clients at which throughput saturates, with confidence intervals.

A throughput that still grows slightly is saturated in one run and not in the next, whatever the threshold. Two sizes
are therefore reported: sizes below the first are significantly too small; from the second on, saturation is proven.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfopt.measurement.speedup import hodges_lehmann

GAIN = 0.05  # relative growth of throughput; less does not justify a longer queue


@dataclass(frozen=True)
class Saturation:
    """The sizes between which throughput saturates.

    Attributes:
        low: Every smaller size has a throughput that is significantly lower than a larger one's, by more than `GAIN`.
        high: No larger size has a throughput higher by `GAIN`, significantly; None if this holds for no size.
        largest: The largest measured size.
    """

    low: int
    high: int | None
    largest: int

    @classmethod
    def of(cls, rates: Mapping[int, NDArray[np.float64]]) -> Self | None:
        """Compute the saturation; return None for fewer than two sizes.

        Args:
            rates: For each size the throughput per second, one value per round, all in the same rounds (at least
                `speedup.FEWEST_ROUNDS`).
        """
        sizes = sorted(rates)
        if len(sizes) < 2:
            return None
        gains = {size: [_gain(rates[size], rates[more]) for more in sizes if more > size] for size in sizes}
        low = next(size for size in sizes if all(least <= 1 + GAIN for least, _ in gains[size]))
        enough = (size for size in sizes[:-1] if all(most < 1 + GAIN for _, most in gains[size]))
        return cls(low, next(enough, None), sizes[-1])

    def facts(self) -> dict[str, Any]:
        """Return all values as a dictionary for the JSON report."""
        return asdict(self) | {"gain": GAIN, "summary": str(self)}

    def __str__(self) -> str:
        """Format as text.

        >>> print(Saturation(8, 8, 64), Saturation(8, 16, 64), sep="; ")
        saturated from 8 on; saturated from 8 or 16 on
        >>> print(Saturation(8, None, 64), Saturation(64, None, 64), sep="; ")
        saturated from 8 or more on; not saturated up to 64
        """
        if self.low == self.largest:
            return f"not saturated up to {self.largest}"
        ends = "" if self.high == self.low else f" or {self.high or 'more'}"
        return f"saturated from {self.low}{ends} on"


def _gain(rates: NDArray[np.float64], larger: NDArray[np.float64]) -> tuple[float, float]:
    """Return the interval of the throughput ratio of the larger size to the smaller one."""
    _, low, high = np.exp(hodges_lehmann(np.log(larger) - np.log(rates)))
    return float(low), float(high)
