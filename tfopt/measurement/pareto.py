"""What nothing beats."""

from collections.abc import Mapping, Sequence


def front(merits: Mapping[str, Sequence[float]]) -> set[str]:
    """The names of which no other is at least as good in every merit and better in one; more is better.

    >>> sorted(front({"fast": (0.97, -1.0), "exact": (0.99, -3.0), "beaten": (0.96, -3.0)}))
    ['exact', 'fast']
    """
    return {
        name
        for name, own in merits.items()
        if not any(
            all(b >= a for a, b in zip(own, other, strict=True)) and tuple(other) != tuple(own)
            for other in merits.values()
        )
    }
