"""Cells of tables: their kinds, conversion to the values of a feature, and the text that a row's split is drawn from.

A cell of CSV and TSV is a text, whose type the column determines. A cell of JSON lines and Parquet is an integer, a
float, a text, a list of these, or None. Bytes that are not UTF-8 are stored in texts as surrogates.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
LARGEST_EXACT = 2**53  # beyond it, a whole float may stand for several integers
LONGEST = 4000  # characters of a number; Python refuses to convert more digits
# The texts that pandas' readers take for a missing value. A column that is declared as string has them as words.
MISSING_WORDS = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"}
    | {"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
DEFAULTS: dict[str, int | float | bytes] = {"int64": 0, "float32": 0.0, "string": b""}


class Kind(IntEnum):
    """The kind of a cell or feature value; used as an index."""

    MISSING = 0
    INTEGER = 1
    NUMBER = 2
    NOT_FINITE = 3
    TEXT = 4


class UnusableError(Exception):
    """Raised if a row cannot become an example; its text is the reason."""


class MissingError(Exception):
    """Raised if a row is left out because a value is missing."""


def parse_cell(name: str, dtype: str, cell: str, is_declared: bool, is_label: bool) -> list[Any] | None:
    """Return the value of a text cell, or None if it is missing; raise UnusableError if it has another type."""
    if dtype == "float32" and (number := _number(cell)) is not None:
        return [number]
    kind = kind_of(cell)
    if kind is Kind.MISSING and (dtype != "string" or not is_declared or not cell.strip()):
        return None
    if dtype == "string" and (kind is Kind.TEXT or is_declared or not is_label):
        return [encode(cell)]
    if dtype == "int64" and kind is Kind.INTEGER:
        return [int(cell)]
    if dtype == "int64" and is_declared and kind is Kind.NUMBER and _is_whole(float(cell)):
        return [int(float(cell))]
    raise UnusableError(f"{name}: {cell[:50]!r} is no {'finite ' if kind is Kind.NOT_FINITE else ''}{dtype}")


def convert_cell(name: str, dtype: str, cell: Any, is_declared: bool) -> list[Any] | None:
    """Return a typed cell's values, None if it is missing; raise UnusableError for other types, or a gap in a list."""
    if cell is None:
        return None
    return [_convert(name, dtype, value, is_declared) for value in (cell if isinstance(cell, list) else [cell])]


def encode(text: str) -> bytes:
    """Return the bytes of a text cell."""
    return text.encode("utf-8", "surrogateescape")


def as_text(cell: Any) -> Any:
    """Return a typed cell, or a list of them, as a CSV contains it: the split of a row does not depend on its format.

    >>> as_text([None, 7, 0.5, "a", [1, 2]])
    ['', '7', '0.5', 'a', ['1', '2']]
    """
    if isinstance(cell, list):
        return [as_text(value) for value in cell]
    return "" if cell is None else cell if isinstance(cell, str) else repr(cell)


def kind_of(cell: str) -> Kind:
    """Return the kind of a text cell. Python's own `float` would also take ``1_000``, and digits of other scripts.

    >>> [kind_of(cell).name for cell in ("7", " -7 ", "7.0", "1e3", "inf", "NA", "", "1_000", "99999999999999999999")]
    ['INTEGER', 'INTEGER', 'NUMBER', 'NUMBER', 'NOT_FINITE', 'MISSING', 'MISSING', 'TEXT', 'NUMBER']
    """
    if len(cell) < 19 and cell.isascii() and cell.isdecimal():  # most cells of most files
        return Kind.INTEGER
    if len(cell) > LONGEST:
        return Kind.TEXT
    if cell.strip() in MISSING_WORDS:
        return Kind.MISSING
    try:
        value = float(cell)
    except ValueError:
        return Kind.TEXT
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


def _convert(name: str, dtype: str, value: Any, is_declared: bool) -> int | float | bytes:
    if value is None:
        raise UnusableError(f"{name}: a list with a missing value")
    if isinstance(value, str):
        if dtype == "string":
            return encode(value)
    elif dtype == "float32" and -LARGEST <= value <= LARGEST:
        return float(value)
    elif dtype == "int64" and isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    elif dtype == "int64" and is_declared and isinstance(value, float) and _is_whole(value):
        return int(value)
    finite = "finite " if dtype == "float32" and not isinstance(value, str) else ""
    raise UnusableError(f"{name}: {repr(value)[:50]} is no {finite}{dtype}")


def _is_whole(value: float) -> bool:
    return value.is_integer() and abs(value) <= LARGEST_EXACT


def _number(cell: str) -> float | None:
    """Return the number if float32 can represent it, else None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if -LARGEST <= value <= LARGEST and "_" not in cell and cell.isascii() else None
