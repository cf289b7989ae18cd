"""Compute the speedup of one model over another from interleaved rounds: ratio, interval and verdict.

Each round runs both models in new processes, in an order drawn at random, and yields the logarithm of the ratio of
their median times. Of models that are equally fast, the order makes it positive or negative with equal probability,
whatever the noise: its distribution is symmetric, and Wilcoxon's signed-rank distribution assumes nothing else. Load
that lasts for the whole measurement does not cancel, so a disturbed round may have had any ratio on a quiet machine:
the lower end of the interval is computed as if it had the ratio 0, the upper end as if it were infinite. See ADR 62.

Reference: Hodges and Lehmann 1963, "Estimates of location based on rank tests"; Hollander, Wolfe and Chicken 2014,
"Nonparametric statistical methods", sections 3.2 and 3.3; Manski 2003, "Partial identification of probability
distributions", chapter 1 (worst-case bounds).
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tfopt.reports.benchmark_report import UNSTABLE, SpeedupEstimate, Verdict

# Several candidates are compared at several batch sizes at once, and each false "faster" may be pushed.
LEVEL = 0.99
# Largest relative change of a log ratio between runs of the same files on a quiet machine: 0.031 and 0.040 for a ratio
# of 9.4 and one of 0.028 in 25 runs of benchmarks/verdicts.py --loaded on a shared AMD EPYC.
BETWEEN_RUNS = 0.05
# With fewer rounds there is no interval of that level: even equal signs in all rounds are too likely by chance.
FEWEST_ROUNDS = 8


def speedup(
    baseline: NDArray[np.float64],
    candidate: NDArray[np.float64],
    *,
    min_effect: float,
    systematic_error: float = 0.0,
    error: float = 1 - LEVEL,
    disturbed: NDArray[np.bool_] | None = None,
    waits: tuple[float, float] = (0.0, 0.0),
) -> SpeedupEstimate:
    """Compare the median times of two models, round by round.

    Args:
        baseline: Median time of the baseline in each round.
        candidate: Median time of the candidate in the same rounds.
        min_effect: Relative difference that counts as within noise.
        systematic_error: Relative difference that all rounds may share for other reasons; it widens the interval.
        error: Probability that the interval misses the true ratio.
        disturbed: True for each round in which other processes used the machine.
        waits: Share of their time that the baseline and the candidate waited for their cores in the other rounds. It
            may have slowed each of them by as much, so it widens the interval.
    """
    ratios = np.log(baseline) - np.log(candidate)
    disturbed = np.zeros(len(ratios), np.bool_) if disturbed is None else disturbed
    value, low, high = np.exp(_pessimistic_interval(ratios, disturbed, error)).tolist()
    is_unstable = not (low > 0 and np.isfinite(high))
    if is_unstable:
        value, low, high = np.exp(hodges_lehmann(ratios, error)).tolist()
    between_runs = np.exp(BETWEEN_RUNS * abs(np.log(value))).item()
    low *= (1 - waits[0]) / (1 + systematic_error) / between_runs
    high *= (1 + systematic_error) / (1 - waits[1]) * between_runs
    result = UNSTABLE if is_unstable else verdict(low, high, min_effect)
    return SpeedupEstimate(value, low, high, result)


def _pessimistic_interval(
    ratios: NDArray[np.float64], disturbed: NDArray[np.bool_], error: float
) -> tuple[float, float, float]:
    """Return the estimate from the quiet rounds, and an interval that holds whatever the other rounds had been."""
    if disturbed.all():
        return 0.0, -np.inf, np.inf
    value = hodges_lehmann(ratios[~disturbed], 1.0)[0]
    _, low, _ = hodges_lehmann(np.where(disturbed, -np.inf, ratios), error)
    _, _, high = hodges_lehmann(np.where(disturbed, np.inf, ratios), error)
    return value, low, high


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
