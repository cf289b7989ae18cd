"""How much faster one model is than another, from rounds of turns: a ratio, its interval and a verdict.

Each round has both models in new processes, lets them take turns in an order drawn at random, and gives one number: the
logarithm of the ratio of their median times. What slows the machine for longer than a round slows both and cancels.
Were the models equally fast, the draw and the luck of the processes would make that number as likely positive as
negative, of any size: its distribution is symmetric about the true log ratio whatever the noise looks like. That is the
one assumption of Wilcoxon's signed-rank distribution, so the estimate and the exact interval that belong to it are
used: the median of the pairwise means of the rounds, and a pair of their order statistics. Neither a bootstrap nor a
t-interval is: on so few rounds, with the heavy tails of a shared machine, both are only approximate, and one disturbed
round moves them.

Reference: Hodges and Lehmann 1963, "Estimates of location based on rank tests"; Hollander, Wolfe and Chicken 2014,
"Nonparametric statistical methods", sections 3.2 and 3.3.
"""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Several candidates at several batch sizes are compared at once, and every false "faster" may be pushed.
LEVEL = 0.99
# With fewer rounds no interval of that level exists: even all of one sign is then too likely by chance.
FEWEST_ROUNDS = 8


@dataclass(frozen=True)
class Speedup:
    """Baseline time over candidate time.

    Attributes:
        value: The estimate; 2 is twice as fast.
        low: Lower end of the interval.
        high: Upper end of the interval.
        verdict: ``faster``, ``slower`` or ``within noise``.
    """

    value: float
    low: float
    high: float
    verdict: str

    def facts(self) -> dict[str, Any]:
        """Everything, for the JSON."""
        return asdict(self)


def speedup(
    baseline: NDArray[np.float64], candidate: NDArray[np.float64], *, min_effect: float, unsure: float = 0.0
) -> Speedup:
    """Compare the median times of two models, round by round.

    Args:
        baseline: Times of the baseline, one of each round.
        candidate: Times of the candidate in the same rounds.
        min_effect: A relative difference not worth the name, nor the risk of calling it one.
        unsure: A relative difference that all rounds may have in common for other reasons; it widens the interval.
    """
    value, low, high = (float(end) for end in np.exp(location(np.log(baseline) - np.log(candidate))))
    low, high = low / (1 + unsure), high * (1 + unsure)
    return Speedup(value, low, high, verdict(low, high, min_effect))


def verdict(low: float, high: float, min_effect: float) -> str:
    """Say what an interval of the speedup shows.

    >>> verdict(1.05, 1.12, 0.03), verdict(0.8, 0.9, 0.03), verdict(1.01, 1.12, 0.03)
    ('faster', 'slower', 'within noise')
    """
    if low > 1 + min_effect:
        return "faster"
    return "slower" if high < 1 / (1 + min_effect) else "within noise"


def location(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate of the centre, and the ends of its exact interval.

    Args:
        values: At least `FEWEST_ROUNDS` independent values, symmetric about the centre.
    """
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    cut = _cut(len(values))
    return float(np.median(means)), float(means[cut]), float(means[-1 - cut])


@cache
def _cut(count: int) -> int:
    """How many of the pairwise means lie outside the interval at either side."""
    ways = np.ones(1)  # of drawing signs for the ranks so far, by the sum of the positive ones
    for rank in range(1, count + 1):
        longer = np.zeros(len(ways) + rank)
        longer[: len(ways)] = ways / 2
        longer[rank:] += ways / 2
        ways = longer
    return int(np.searchsorted(np.cumsum(ways), (1 - LEVEL) / 2, side="right")) - 1
