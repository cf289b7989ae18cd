"""Determine the batch size or number of clients at which throughput saturates, with confidence intervals.

A throughput that still grows slightly is saturated in one run and not in the next, whatever the threshold. Two sizes
are therefore reported: sizes below the first are significantly too small; from the second on, saturation is proven.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tfopt.measurement.speedup import LEVEL, hodges_lehmann
from tfopt.reports.benchmark_report import SaturationRange

GAIN = 0.05  # relative growth of throughput; less does not justify a longer queue


def find_saturation(rates: Mapping[int, NDArray[np.float64]], error: float = 1 - LEVEL) -> SaturationRange | None:
    """Compute between which sizes throughput saturates; None for fewer than two sizes.

    Args:
        rates: For each size the throughput per second, one value per round, all in the same rounds (at least
            `speedup.FEWEST_ROUNDS`).
        error: Probability that the interval of a comparison of two sizes misses their true ratio.
    """
    sizes = sorted(rates)
    if len(sizes) < 2:
        return None
    gains = {size: [_gain(rates[size], rates[more], error) for more in sizes if more > size] for size in sizes}
    low = next(size for size in sizes if all(least <= 1 + GAIN for least, _ in gains[size]))
    enough = (size for size in sizes[:-1] if all(most < 1 + GAIN for _, most in gains[size]))
    high = next(enough, None)
    return SaturationRange(low, high, sizes[-1], GAIN, _summarize(low, high, sizes[-1]))


def _summarize(low: int, high: int | None, largest: int) -> str:
    """Describe a range.

    >>> print(_summarize(8, 8, 64), _summarize(8, 16, 64), sep="; ")
    saturated from 8 on; saturated from 8 or 16 on
    >>> print(_summarize(8, None, 64), _summarize(64, None, 64), sep="; ")
    saturated from 8 or more on; not saturated up to 64
    """
    if low == largest:
        return f"not saturated up to {largest}"
    ends = "" if high == low else f" or {high or 'more'}"
    return f"saturated from {low}{ends} on"


def _gain(rates: NDArray[np.float64], larger: NDArray[np.float64], error: float) -> tuple[float, float]:
    _, low, high = np.exp(hodges_lehmann(np.log(larger) - np.log(rates), error))
    return float(low), float(high)
