"""What zeros may lie where, and how a user writes it."""

from dataclasses import dataclass

from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Pattern:
    """What zeros may lie where.

    Attributes:
        name: ``magnitude``, ``n_m`` or ``block``.
        ratio: Of ``n_m``: how many stay of how many neighbours.
        block: Of ``block``: rows (input channels) and columns (output channels) that stay or go together.
    """

    name: str
    ratio: tuple[int, int] = (2, 4)
    block: tuple[int, int] = (1, 4)


def parse_ratio(text: str) -> tuple[int, int]:
    """Read ``2:4``: how many stay of how many neighbours.

    >>> parse_ratio("2:4")
    (2, 4)

    Raises:
        ComponentError: When it is none.
    """
    n, _, m = text.partition(":")
    if not (n.isdecimal() and m.isdecimal() and 0 < int(n) < int(m)):
        raise ComponentError(f"{text!r}", "N:M, keep N of every M weights, N smaller", "write 2:4")
    return int(n), int(m)


def parse_block(text: str) -> tuple[int, int]:
    """Read ``1x4``: input channels and output channels of a block.

    >>> parse_block("1x4")
    (1, 4)

    Raises:
        ComponentError: When it is none.
    """
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) * int(width) > 1):
        raise ComponentError(f"{text!r}", "HEIGHTxWIDTH, more than one weight", "write 1x4")
    return int(height), int(width)
