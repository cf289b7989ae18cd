"""Schedule the looks of a measurement that stops as soon as its comparisons are decided.

An interval of 99 % that is computed until it looks good misses the true value far more often than in 1 % of all cases.
The numbers of rounds after which intervals are computed (*looks*) are therefore fixed in advance, and the error of 1 %
is divided among them (Boole's inequality). ADR 41 has the reasons.

Source: Lan and DeMets 1983, "Discrete sequential boundaries for clinical trials" (error spending); Jennison and
Turnbull 2000, "Group sequential methods", chapters 7 and 9 (repeated confidence intervals) and 10 (futility);
Spiegelhalter, Freedman and Blackburn 1986, "Monitoring clinical trials: conditional or predictive power?".
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from tfopt.measurement.speedup import LEVEL

# Error of each interim look. 10 rounds can exclude a value with an error of 2^-9 at the least, if all rounds agree. The
# last look keeps half of the whole error, so that a full measurement is hardly less sensitive than one without looks.
INTERIM_ERRORS = {10: 2.0**-9, 16: 0.001, 26: 0.001, 40: 0.001}
LATEST_INTERIM = 0.75  # share of all rounds; a later interim look would save little
# Of intervals from which a standard error is estimated; single rounds determine the ends of wider ones.
SPREAD_ERROR = 0.2
FUTILITY = 0.1  # predictive probability of a decision below which the remaining rounds are not run


@dataclass(frozen=True)
class LookSchedule:
    """The looks of a measurement."""

    # Probability that an interval misses the true value, by the number of rounds it is computed from, ascending. The
    # last number is that of all rounds.
    errors: dict[int, float]

    @classmethod
    def of(cls, rounds: int) -> "LookSchedule":
        """Return the schedule for a number of rounds.

        >>> list(LookSchedule.of(60).errors), list(LookSchedule.of(12).errors)
        ([10, 16, 26, 40, 60], [12])
        """
        interim = {look: error for look, error in INTERIM_ERRORS.items() if look <= LATEST_INTERIM * rounds}
        return cls({**interim, rounds: 1 - LEVEL - sum(interim.values())})

    @classmethod
    def doubling(cls, first: int, last: int, error: float) -> "LookSchedule":
        """Return looks at a number of records, twice as many, and so on; half of the error is that of the last look.

        >>> LookSchedule.doubling(64, 200, 0.04).errors
        {64: 0.01, 128: 0.01, 200: 0.02}
        """
        numbers = [first << power for power in range(max(last, 1).bit_length())]
        interim = [number for number in numbers if number <= LATEST_INTERIM * last]
        if not interim:
            return cls({last: error})
        return cls({**dict.fromkeys(interim, error / 2 / len(interim)), last: error / 2})

    def is_futile(self, rounds: int, difference: float, standard_error: float, margin: float) -> bool:
        """Return True if the remaining rounds would decide a comparison with a probability of less than `FUTILITY`.

        A comparison is decided if the log ratio exceeds the half-width of its interval and a margin that does not
        depend on the number of rounds. With a flat prior, the estimate at the last look is normal around today's, with
        the variance ``standard_error**2 * (1 - rounds / last)`` (predictive power).
        """
        last, normal = max(self.errors), NormalDist()
        half_width = normal.inv_cdf(1 - self.errors[last] / 2) * standard_error * math.sqrt(rounds / last)
        drift = normal.inv_cdf(1 - FUTILITY) * standard_error * math.sqrt(1 - rounds / last)
        return abs(difference) + drift < half_width + margin


def standard_error(low: float, high: float) -> float:
    """Return the standard error of a log ratio with this interval of the error `SPREAD_ERROR`."""
    return (math.log(high) - math.log(low)) / 2 / NormalDist().inv_cdf(1 - SPREAD_ERROR / 2)
