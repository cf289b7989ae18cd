"""Cells of tables: conversion of a cell to the values of a feature, and the text that a row's split is drawn from.

A cell of CSV and TSV is a text, whose type the column determines. A cell of JSON lines and Parquet is an integer, a
float, a text, a list of these, or None. Bytes that are not UTF-8 are stored in texts as surrogates.
"""

from typing import Any

import numpy as np

from tfopt.components.prepare_examples.survey.value_kinds import Kind, kind_of

LARGEST = float(np.finfo(np.float32).max)
LARGEST_EXACT = 2**53  # beyond it, a whole float may stand for several integers
DEFAULTS: dict[str, int | float | bytes] = {"int64": 0, "float32": 0.0, "string": b""}


class UnusableError(Exception):
    """Raised if a row cannot become an example; its text is the reason."""


class MissingError(Exception):
    """Raised if a row is left out because a value is missing."""


def parse_cell(name: str, dtype: str, cell: str, is_declared: bool, is_label: bool) -> list[Any] | None:
    """Return the value of a text cell, or None if it is missing.

    Raises:
        UnusableError: If it does not have the column's type.
    """
    if dtype == "float32" and (number := _number(cell)) is not None:
        return [number]
    kind = kind_of(cell)
    if kind is Kind.MISSING:
        return None
    if dtype == "string" and (kind is Kind.TEXT or is_declared or not is_label):
        return [encode(cell)]
    if dtype == "int64" and kind is Kind.INTEGER:
        return [int(cell)]
    if dtype == "int64" and is_declared and kind is Kind.NUMBER and _is_whole(float(cell)):
        return [int(float(cell))]
    raise UnusableError(f"{name}: {cell[:50]!r} is no {'finite ' if kind is Kind.NOT_FINITE else ''}{dtype}")


def convert_cell(name: str, dtype: str, cell: Any, is_declared: bool, is_label: bool) -> list[Any] | None:
    """Return the values of a typed cell, or None if it is missing.

    Raises:
        UnusableError: If a value does not have the column's type, or is missing in a list.
    """
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
