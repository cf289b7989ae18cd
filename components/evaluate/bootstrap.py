"""Poisson bootstrap: each record counts 0, 1, 2 … times in each replicate, independently of all other records.

Drawing n of n records with replacement would need n. The Poisson bootstrap does not, so each part of the data is
resampled by itself and the results are added up. The weights depend on the seed, the file's name and the index of the
batch in it, never on the worker or the time.
"""

import zlib
from functools import cache
from math import exp, factorial

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95


def bootstrap_weights(seed: int, file: str, batch: int, records: int, replicates: int) -> NDArray[np.float32]:
    """Return the weight of each record of a batch in each replicate, ``[records, replicates]``."""
    bits = np.random.SFC64(np.random.SeedSequence([seed % 2**32, zlib.crc32(file.encode()), batch]))
    words = np.random.Generator(bits).bytes(2 * records * replicates)
    return _counts().take(np.frombuffer(words, np.uint16)).reshape(records, replicates)


def percentile_interval(replicates: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the central `LEVEL` of the replicates' values; None if all of them are NaN or infinite."""
    finite = replicates[np.isfinite(replicates)]
    if not len(finite):
        return None
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@cache
def _counts() -> NDArray[np.float32]:
    """Return the Poisson(1) quantile of each 16-bit word: a lookup table, exact to 1 in 65,536."""
    cumulative = np.cumsum([exp(-1) / factorial(count) for count in range(10)])
    return np.searchsorted(cumulative, (np.arange(65536) + 0.5) / 65536, side="right").astype(np.float32)
