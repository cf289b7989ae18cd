"""Intervals of changes between two independent samples.

Reference:
    Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10, here with the
    exact intervals of Clopper and Pearson.
    Massart 1990, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality".
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfopt.measurement.confidence_bounds import share_interval

Floats = NDArray[np.float64]
Interval = tuple[float, float, float]  # the change, and the ends of its interval


def share_change(reference: Floats, served: Floats, error: float) -> Interval:
    """Return the change of the mean of shares, one for each record.

    If each share is 0 or 1, the intervals of both means are exact. Otherwise the interval is Welch's, and each sample
    has one more record, the unseen record (ADR 61), with the largest or smallest share of both samples.
    """
    change = float(served.mean() - reference.mean())
    if np.isin(reference, (0, 1)).all() and np.isin(served, (0, 1)).all():
        before, now = (share_interval(int(rows.sum()), len(rows), error) for rows in (reference, served))
        low = change - math.hypot(served.mean() - now[0], before[1] - reference.mean())
        high = change + math.hypot(now[1] - served.mean(), reference.mean() - before[0])
        return change, max(low, -1.0), min(high, 1.0)
    ends = (min(reference.min(), served.min()), max(reference.max(), served.max()))
    if ends[0] == ends[1]:  # no record differs
        return change, change, change
    low = _welch(np.append(served, ends[0]), np.append(reference, ends[1]), error)[0]
    high = _welch(np.append(served, ends[1]), np.append(reference, ends[0]), error)[1]
    return change, max(low, -1.0), min(high, 1.0)


def _welch(served: Floats, reference: Floats, error: float) -> tuple[float, float]:
    interval = stats.ttest_ind(served, reference, equal_var=False).confidence_interval(1 - error)
    return float(interval.low), float(interval.high)


def distribution_distance(reference: Floats, served: Floats, error: float) -> Interval:
    """Return Kolmogorov and Smirnov's distance of two distributions, with an interval that holds for any distribution.

    The inequality of Dvoretzky, Kiefer and Wolfowitz holds for each sample with half of the error.
    """
    distance = float(stats.ks_2samp(reference, served, method="asymp").statistic)
    room = math.sqrt(math.log(4 / error) / 2) * (1 / math.sqrt(len(reference)) + 1 / math.sqrt(len(served)))
    return distance, max(distance - room, 0.0), min(distance + room, 1.0)
