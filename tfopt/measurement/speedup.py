"""Compute the speedup of one model over another from interleaved rounds: ratio, interval and verdict.

Each round runs both models in new processes, in turns whose order is drawn at random, and yields one number: the
logarithm of the ratio of their median times. Disturbances that last longer than a round slow both models and cancel.
If the models are equally fast, the random order and the differences between processes make that number positive or
negative with equal probability: its distribution is symmetric about the true log ratio whatever the noise. This is the
only assumption of Wilcoxon's signed-rank distribution, so its estimate and its exact interval are used: the median of
the pairwise means of the rounds, and a pair of their order statistics. A bootstrap or t-interval would only be
approximate for so few rounds with the heavy tails of a shared machine, and a single disturbed round would change it.

Reference: Hodges and Lehmann 1963, "Estimates of location based on rank tests"; Hollander, Wolfe and Chicken 2014,
"Nonparametric statistical methods", sections 3.2 and 3.3.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.benchmark_report import SpeedupEstimate, Verdict

# Several candidates are compared at several batch sizes at once, and each false "faster" may be pushed.
LEVEL = 0.99
# With fewer rounds there is no interval of that level: even equal signs in all rounds are too likely by chance.
FEWEST_ROUNDS = 8


def speedup(
    baseline: NDArray[np.float64],
    candidate: NDArray[np.float64],
    *,
    min_effect: float,
    systematic_error: float = 0.0,
    error: float = 1 - LEVEL,
) -> SpeedupEstimate:
    """Compare the median times of two models, round by round.

    Args:
        baseline: Median time of the baseline in each round.
        candidate: Median time of the candidate in the same rounds.
        min_effect: Relative difference that counts as within noise.
        systematic_error: Relative difference that all rounds may share for other reasons; it widens the interval.
        error: Probability that the interval misses the true ratio.
    """
    value, low, high = (float(end) for end in np.exp(hodges_lehmann(np.log(baseline) - np.log(candidate), error)))
    low, high = low / (1 + systematic_error), high * (1 + systematic_error)
    return SpeedupEstimate(value, low, high, verdict(low, high, min_effect))


def verdict(low: float, high: float, min_effect: float) -> Verdict:
    """Return the verdict for an interval of the speedup.

    >>> verdict(1.05, 1.12, 0.03), verdict(0.8, 0.9, 0.03), verdict(1.01, 1.12, 0.03)
    ('faster', 'slower', 'within noise')
    """
    if low > 1 + min_effect:
        return "faster"
    return "slower" if high < 1 / (1 + min_effect) else "within noise"


def hodges_lehmann(values: NDArray[np.float64], error: float = 1 - LEVEL) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate of the center and its exact confidence interval.

    Args:
        values: At least `FEWEST_ROUNDS` independent values, symmetric about the center.
        error: Probability that the interval misses the center; at least ``2 / 2**len(values)``.
    """
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    cut = _cut(len(values), error)
    return float(np.median(means)), float(means[cut]), float(means[-1 - cut])


@cache
def _cut(count: int, error: float) -> int:
    """Return how many of the pairwise means lie outside the interval on either side."""
    ways = np.ones(1)  # probability of each sum of the positive ranks so far
    for rank in range(1, count + 1):
        longer = np.zeros(len(ways) + rank)
        longer[: len(ways)] = ways / 2
        longer[rank:] += ways / 2
        ways = longer
    return int(np.searchsorted(np.cumsum(ways), error / 2, side="right")) - 1
