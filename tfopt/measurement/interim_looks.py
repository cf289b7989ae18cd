"""Schedule the looks of a measurement that stops as soon as its comparisons are decided.

An interval of level 99 % that is computed again after every round misses the true value at some time far more often
than in 1 % of all measurements, and a measurement that stops when the interval looks good reports these times. So the
numbers of rounds after which intervals are computed (*looks*) are fixed in advance, and the error probability of 1 %
is divided among them. The probability that any of the intervals misses the true value is at most the sum of their
errors (Boole's inequality), so the level holds at whichever look a comparison stops, and for any rule of stopping.

Source: Lan and DeMets 1983, "Discrete sequential boundaries for clinical trials" (error spending); Jennison and
Turnbull 2000, "Group sequential methods", chapters 7 and 9 (repeated confidence intervals).
"""

from dataclasses import dataclass

from tfopt.measurement.speedup import LEVEL

# Error of each interim look. 10 rounds can exclude a value with an error of 2^-9 at the least, if all rounds agree. The
# last look keeps half of the whole error, so that a full measurement is hardly less sensitive than one without looks.
INTERIM_ERRORS = {10: 2.0**-9, 16: 0.001, 26: 0.001, 40: 0.001}
LATEST_INTERIM = 0.75  # share of all rounds; a later interim look would save little


@dataclass(frozen=True)
class LookSchedule:
    """The looks of a measurement.

    Attributes:
        errors: Probability that an interval misses the true value, by the number of rounds it is computed from,
            ascending. The last number is that of all rounds.
    """

    errors: dict[int, float]

    @classmethod
    def of(cls, rounds: int) -> "LookSchedule":
        """Return the schedule for a number of rounds.

        >>> list(LookSchedule.of(60).errors), list(LookSchedule.of(12).errors)
        ([10, 16, 26, 40, 60], [12])
        """
        interim = {look: error for look, error in INTERIM_ERRORS.items() if look <= LATEST_INTERIM * rounds}
        return cls({**interim, rounds: 1 - LEVEL - sum(interim.values())})
