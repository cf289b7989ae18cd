"""Batch sizes as they are written: words, since a list of a component holds text."""

from tfopt.errors import ComponentError


def read_sizes(batch_sizes: list[str]) -> list[int]:
    """Read batch sizes: in order, each once.

    >>> read_sizes(["32", "1"])
    [1, 32]

    Raises:
        ComponentError: When there is none, or one is no whole number from 1.
    """
    wrong = [word for word in batch_sizes if not (word.isdecimal() and int(word) > 0)]
    if wrong or not batch_sizes:
        raise ComponentError(
            f"batch_sizes={batch_sizes}", "whole numbers from 1, at least one", 'pass batch_sizes=["1", "32"]'
        )
    return sorted({int(word) for word in batch_sizes})
