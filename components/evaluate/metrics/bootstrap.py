"""Bayesian bootstrap: each record has a standard exponential weight in each replicate, independent of all others.

The weights of n records, divided by their sum, are uniformly distributed over all ways to divide 1 among them (Rubin
1981, "The Bayesian bootstrap").
Each part of the data is weighted by itself, and the results are added up. The weights depend on the seed, the file's
name and the index of the batch in it, never on the worker or the time.

A weight is a whole number of sixteenths and at least one sixteenth, so that sums of a batch are exact in 16 bits and no
record, class or slice disappears from a replicate.
"""

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

UNIT = 16  # a weight of 1, in the unit of `bootstrap_weights`


def bootstrap_weights(seed: int, file: str, batch: int, records: int, replicates: int) -> NDArray[np.uint16]:
    """Return the weight of each record of a batch, ``[records, replicates]``, in units of 1 / `UNIT`."""
    bits = np.random.SFC64(np.random.SeedSequence([seed % 2**32, zlib.crc32(file.encode()), batch]))
    words = np.random.Generator(bits).bytes(2 * records * replicates)
    return np.asarray(_quantiles().take(np.frombuffer(words, np.uint16)).reshape(records, replicates))


def unseen_record_weights(seed: int, replicates: int) -> NDArray[np.float64]:
    """Return the weight of the unseen record in each replicate (`tfopt.measurement.confidence_bounds`)."""
    return np.asarray(bootstrap_weights(seed, "unseen record", 0, 1, replicates)[0], np.float64)


@cache
def _quantiles() -> NDArray[np.uint16]:
    """Return the exponential quantile of each 16-bit word; the largest is 189, of 256 records less than 2^16."""
    exact = -np.log1p(-(np.arange(65536) + 0.5) / 65536)
    return np.asarray(np.maximum(np.rint(UNIT * exact), 1), np.uint16)
