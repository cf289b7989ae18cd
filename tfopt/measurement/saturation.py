"""From which batch size, or with how many clients, a model gives no more: said with intervals, as speed is.

A rate that still grows by a little looks saturated in one run and not in the next, wherever a threshold is put. So two
sizes are told: those below the first are proven not to be enough, those from the second on are proven to be.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfopt.measurement.speedup import location

GAIN = 0.05  # less is not worth a longer queue


@dataclass(frozen=True)
class Saturation:
    """Where more in a call, or at once, gives no more.

    Attributes:
        low: Every smaller size is proven to give less than some larger one does, by more than `GAIN`.
        high: No size that is larger than this one gives `GAIN` more, which is proven; None when it is of none.
        largest: The largest size that was tried.
    """

    low: int
    high: int | None
    largest: int

    @classmethod
    def of(cls, rates: Mapping[int, NDArray[np.float64]]) -> Self | None:
        """Find it; None with fewer than two sizes, of which there is nothing to say.

        Args:
            rates: For each size how much was done in a second, one number for each round, in the same rounds (at least
                `ratio.FEWEST_ROUNDS`).
        """
        sizes = sorted(rates)
        if len(sizes) < 2:
            return None
        gains = {size: [_gain(rates[size], rates[more]) for more in sizes if more > size] for size in sizes}
        low = next(size for size in sizes if all(least <= 1 + GAIN for least, _ in gains[size]))
        enough = (size for size in sizes[:-1] if all(most < 1 + GAIN for _, most in gains[size]))
        return cls(low, next(enough, None), sizes[-1])

    def facts(self) -> dict[str, Any]:
        """Everything, for the JSON."""
        return asdict(self) | {"gain": GAIN, "said": str(self)}

    def __str__(self) -> str:
        """Say it.

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
    """The interval of how many times as much the larger size gives."""
    _, low, high = np.exp(location(np.log(larger) - np.log(rates)))
    return float(low), float(high)
