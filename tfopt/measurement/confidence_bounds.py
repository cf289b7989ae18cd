"""Confidence bounds for means of records that hold for few records, also if all of them agree.

Each bound counts one more record, the unseen record, with the worst value that a record can have. All n + 1 records get
weights that are uniformly distributed over all ways to divide 1 among them; the bound is a quantile of the weighted
mean. For shares this is the exact bound of Clopper and Pearson. docs/verdicts.md has the formulas, ADR 61 the reasons.

Reference:
    Clopper and Pearson 1934, "The use of confidence or fiducial limits illustrated in the case of the binomial".
    Gaffke 2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable".
    Learned-Miller and Thomas 2019, "A new confidence interval for the mean of a bounded random variable".
    Rubin 1981, "The Bayesian bootstrap".
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95  # of all intervals of an evaluation together
SMALLEST_SAMPLE = 10  # records with which the interval of a metric that is no share of records is used
POWER = 0.8  # probability with which a model as good as the baseline passes with `records_needed`

Array = NDArray[np.float64]


def simultaneous_error(candidates: int) -> float:
    """Return the error of each two-sided interval so that the intervals of all candidates hold together (Bonferroni).

    The best of several candidates is selected, so the probability that any of them passes a goal that it misses counts.

    >>> round(simultaneous_error(1), 4), round(simultaneous_error(10), 4)
    (0.05, 0.005)
    """
    return (1 - LEVEL) / max(candidates, 1)


def smallest_visible_loss(records: int, candidates: int) -> float:
    """Return the loss of a share that this number of records cannot exclude even if no record differs.

    >>> round(smallest_visible_loss(62, 1), 3)
    0.058
    """
    return 1.0 if records < 1 else float(-math.expm1(math.log(simultaneous_error(candidates) / 2) / records))


def records_needed(loss: float, candidates: int, spread: float = 0.0, reach: float = 1.0) -> int:
    """Return how many records show that an equally good model loses less than ``loss``, with probability `POWER`.

    Args:
        loss: The loss that is to be excluded, in the metric's unit.
        candidates: Number of candidates.
        spread: Standard deviation of the difference of one record. For a share it is the root of the share of records
            that one of the two models has right, and the other wrong. With 0 it is the inverse of
            `smallest_visible_loss`.
        reach: How far the unseen record moves the difference, times the number of records; 1 for a share.

    >>> records_needed(0.01, 1), records_needed(0.01, 9), records_needed(0.01, 1, spread=0.1)
    (368, 586, 1426)
    """
    part = min(loss / max(reach, 1e-12), 1 - 1e-9)
    fewest = math.ceil(math.log(simultaneous_error(candidates) / 2) / math.log1p(-part))
    half = (_normal_quantile(simultaneous_error(candidates) / 2) + _normal_quantile(1 - POWER)) * spread / 2
    # The root of loss * n = loss * fewest + 2 * half * sqrt(n): the unseen record, and the records that differ.
    return math.ceil(((half + math.sqrt(half**2 + loss**2 * fewest)) / loss) ** 2 * (1 - 1e-12))


def spread_of_record(distance: float, unseen: float, records: int, candidates: int) -> float:
    """Return the standard deviation of the difference of one record, from the distance of the pessimistic bound.

    The unseen record, which moves the difference by ``unseen``, contributes to the distance like 1 / n, the sample like
    1 / sqrt(n). If no record differs, one more could, so the unseen record counts as a part of the sample, too.

    >>> round(spread_of_record(smallest_visible_loss(100, 1), 0.01, 100, 1), 2)
    0.1
    """
    error = simultaneous_error(candidates) / 2
    sampled = max(distance**2 - (math.log(error) * unseen) ** 2, 0.0) / _normal_quantile(error) ** 2
    return math.sqrt((sampled + unseen**2) * records)


def share_interval(hits: int, records: int, error: float) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson).

    >>> [round(end, 4) for end in share_interval(10, 10, 0.05)]
    [0.6915, 1.0]
    """
    from scipy.special import betaincinv

    low = betaincinv(hits, records - hits + 1, error / 2) if hits else 0.0
    high = betaincinv(hits + 1, records - hits, 1 - error / 2) if hits < records else 1.0
    return float(low), float(high)


def share_difference_interval(rising: int, falling: int, records: int, error: float) -> tuple[float, float]:
    """Return the interval of the difference of two shares of the same records.

    Args:
        rising: Records that only the first model has right.
        falling: Records that only the second model has right.
        records: All records.
        error: Probability that the interval misses the difference.

    >>> [round(end, 3) for end in share_difference_interval(0, 0, 62, 0.05)]
    [-0.058, 0.058]
    """
    return -_loss_bound(falling, rising, records, error / 2), _loss_bound(rising, falling, records, error / 2)


def replicate_interval(low: Array, high: Array, error: float) -> tuple[float, float] | None:
    """Return the interval of a metric from its bootstrap replicates; None if too few of them are finite.

    Args:
        low: Replicates with an unseen record that lowers the metric, ``[kinds of record, replicates]``.
        high: Replicates with an unseen record that raises it.
        error: Probability that the interval misses the metric.
    """
    lower = [_lower_quantile(row, error / 2) for row in np.atleast_2d(low)]
    upper = [_lower_quantile(-row, error / 2) for row in np.atleast_2d(high)]
    ends = min(lower), -min(upper)
    return ends if np.isfinite(ends).all() else None


def _lower_quantile(replicates: Array, error: float) -> float:
    """Return the quantile of the Pearson type III distribution with the replicates' mean, variance and skewness.

    Weighted means of few values that differ are close to it, and its tail reaches beyond the smallest replicate, as the
    intervals of many candidates need.
    """
    from scipy.special import gammaincinv, ndtri

    finite = replicates[np.isfinite(replicates)]
    if len(finite) < 20:
        return math.nan
    mean, deviation = float(finite.mean()), float(finite.std())
    if deviation <= 1e-12 * max(abs(mean), 1e-300):
        return mean
    skewness = float(np.mean(((mean - finite) / deviation) ** 3))  # of the distance below the mean
    if abs(skewness) < 0.02:
        return mean + deviation * float(ndtri(error))
    shape = 4 / skewness**2
    probability = 1 - error if skewness > 0 else error
    distance = (float(gammaincinv(shape, probability)) - shape) / math.sqrt(shape) * math.copysign(1, skewness)
    return mean - deviation * distance


def _normal_quantile(error: float) -> float:
    return -NormalDist().inv_cdf(error)


@cache
def _loss_bound(losses: int, wins: int, records: int, error: float) -> float:
    """Return the upper bound of the share of losses minus the share of wins.

    With the unseen record as a loss, losses, wins and other records weigh Dirichlet(losses + 1, wins, rest).
    The weight of losses and wins together is a beta variable, independent of the losses' part of it.
    """
    from scipy.optimize import brentq
    from scipy.special import betainc, betaincinv

    rest = records - losses - wins
    if wins == 0:
        return float(betaincinv(losses + 1, rest, 1 - error)) if rest else 1.0
    if rest == 0:
        return float(2 * betaincinv(losses + 1, wins, 1 - error) - 1)
    probabilities, weights = _tail_nodes()
    part = 2 * betaincinv(losses + 1, wins, probabilities) - 1

    def excess(bound: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = np.clip(np.where(part == 0, np.sign(bound) * np.inf, bound / part), 0, 1)
        below = betainc(losses + wins + 1, rest, reached)
        if bound >= 0:
            return float(weights @ np.where(part > 0, 1 - below, 0)) - error
        return float(weights @ np.where(part < 0, below, 1)) - error

    return float(brentq(excess, -1 + 1e-12, 1 - 1e-12, xtol=1e-7))


@cache
def _tail_nodes() -> tuple[Array, Array]:
    """Return the midpoints and the lengths of intervals of probability, dense near 1, where the tail is."""
    edges = np.concatenate([np.linspace(0, 0.99, 801), 1 - np.geomspace(0.01, 1e-9, 201)[1:], [1.0]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)
