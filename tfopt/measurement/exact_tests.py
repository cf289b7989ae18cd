"""Exact tests on counts of records, valid for every number of them."""

from math import comb

LEVEL = 0.01  # one-sided


def least_share(changed: int, records: int, level: float = LEVEL) -> float:
    """Return the lower end of the one-sided Clopper-Pearson interval of a share.

    The largest share is 1 - ``least_share(records - changed, records)``.

    C. Clopper, E. Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial (1934).

    >>> round(least_share(6, 24), 3), least_share(0, 24), round(least_share(60, 240), 3)
    (0.08, 0.0, 0.188)
    """
    if not changed:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        at_least = sum(comb(records, k) * share**k * (1 - share) ** (records - k) for k in range(changed, records + 1))
        low, high = (share, high) if at_least < level else (low, share)
    return low


def changes_more(changed: int, records: int, other_changed: int, other_records: int) -> bool:
    """Return True if a share of changed records is significantly larger than another one, by Fisher's exact test.

    R. A. Fisher: Statistical methods for research workers, 5th edition (1934).

    >>> changes_more(7, 24, 0, 24), changes_more(4, 24, 0, 24), changes_more(18, 64, 1, 64)
    (True, False, True)
    """
    total = changed + other_changed
    ways = comb(records + other_records, total)
    tail = sum(comb(records, k) * comb(other_records, total - k) for k in range(changed, min(total, records) + 1))
    return tail / ways < LEVEL
