"""Batch sizes as they are written: words, since a list of a component holds text."""

import re

from tfopt.errors import ComponentError


def read_sizes(batch_sizes: list[str]) -> list[int]:
    """Read batch sizes: in order, each once. ``1-64`` is each of them doubled, up to that.

    >>> read_sizes(["32", "1"]), read_sizes(["1-8", "12"]), read_sizes(["3-20"])
    ([1, 32], [1, 2, 4, 8, 12], [3, 6, 12])

    Raises:
        ComponentError: When there is none, or one is no whole number from 1, or a range runs backwards.
    """
    wrong = [word for word in batch_sizes if not _sizes(word)]
    if wrong or not batch_sizes:
        raise ComponentError(
            f"batch_sizes={batch_sizes}",
            "whole numbers from 1, at least one, or a range such as 1-64",
            'pass batch_sizes=["1", "32"]',
        )
    return sorted({size for word in batch_sizes for size in _sizes(word)})


def _sizes(word: str) -> list[int]:
    """What a word stands for; nothing where it is no such word."""
    found = re.fullmatch(r"([1-9]\d*)(?:-(\d+))?", word, re.ASCII)
    if not found:
        return []
    first = int(found[1])
    doublings = (int(found[2] or first) // first).bit_length()
    return [first << power for power in range(doublings)]
