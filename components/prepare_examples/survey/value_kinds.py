"""Kinds of values: missing, integer, number, not finite, text."""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class Kind(IntEnum):
    """The kind of a cell or feature value; used as an index."""

    MISSING = 0
    INTEGER = 1
    NUMBER = 2
    NOT_FINITE = 3
    TEXT = 4


def kind_of(cell: str) -> Kind:
    """Return the kind of a text cell. Python's own `float` would also take ``1_000``, and digits of other scripts.

    >>> [kind_of(cell).name for cell in ("7", " -7 ", "7.0", "1e3", "NaN", "", "1_000", "99999999999999999999")]
    ['INTEGER', 'INTEGER', 'NUMBER', 'NUMBER', 'NOT_FINITE', 'MISSING', 'TEXT', 'NUMBER']
    """
    if len(cell) < 19 and cell.isascii() and cell.isdecimal():  # most cells of most files
        return Kind.INTEGER
    try:
        value = float(cell)
    except ValueError:
        return Kind.TEXT if cell.strip() else Kind.MISSING
    if "_" in cell or not cell.isascii():
        return Kind.TEXT
    if "." in cell:
        return Kind.NUMBER
    if not math.isfinite(value):
        return Kind.NOT_FINITE
    whole = cell.strip().lstrip("+-").isdecimal() and -(2**63) <= int(cell) < 2**63
    return Kind.INTEGER if whole else Kind.NUMBER


def kinds_of(cells: Sequence[str]) -> bytes:
    """Return the kind of every cell of a row, a byte each, with a fast path for rows of whole numbers (pixels)."""
    joined = "".join(cells)
    if joined.isascii() and joined.isdecimal() and all(cells) and max(map(len, cells)) < 19:
        return bytes([Kind.INTEGER]) * len(cells)
    return bytes(map(kind_of, cells))


def kind_of_value(value: Any) -> Kind:
    """Return the kind of a typed value, or the widest kind in a list.

    >>> [kind_of_value(value).name for value in (None, [], 7, 2**64, [1, 0.5], float("nan"), "7")]
    ['MISSING', 'MISSING', 'INTEGER', 'NUMBER', 'NUMBER', 'NOT_FINITE', 'TEXT']
    """
    if isinstance(value, list):
        return max(map(kind_of_value, value), default=Kind.MISSING)
    if value is None:
        return Kind.MISSING
    if isinstance(value, str):
        return Kind.TEXT
    if isinstance(value, int):
        return Kind.INTEGER if -(2**63) <= value < 2**63 else Kind.NUMBER
    return Kind.NUMBER if math.isfinite(value) else Kind.NOT_FINITE


def is_number(cell: str) -> bool:
    """Return True if the cell is a finite number."""
    return kind_of(cell) in (Kind.INTEGER, Kind.NUMBER)
