"""Checks of the columns of a table, common to all table formats."""

from collections.abc import Iterable, Sequence
from typing import Any

from tfopt.components.prepare_examples.parameters import Settings
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

LONG = 20


def check_names(columns: Sequence[str], file: str, fix: str = "rename them") -> None:
    """Raise ComponentError if a column has no name or another column's."""
    unnamed = [str(index + 1) for index, name in enumerate(columns) if not name]
    has_duplicates = len(set(columns)) < len(columns)  # counting each name is slow for thousands of columns
    twice = sorted({name for name in columns if columns.count(name) > 1} - {""}) if has_duplicates else []
    if twice or unnamed:
        received = f"columns named twice: {', '.join(twice)}" if twice else f"no name for column {', '.join(unnamed)}"
        raise ComponentError(f"{file}: {received}", "a different name for every column", fix)


def check_label(columns: Sequence[str], label: str, file: str, fix: str | None = None) -> None:
    """Raise ComponentError if no column has the label's name."""
    if label not in columns:
        shown = columns if len(columns) <= LONG else [*columns[: LONG // 2], *columns[-LONG // 2 :]]
        raise ComponentError(f"{file}: no column {label!r}", "the name of a column", fix or nearest(label, shown))


def check_size(columns: Sequence[str], first_row: Iterable[Any], settings: Settings, file: str, fix: str) -> None:
    """Raise ComponentError if the label is the only column, or the first row does not fit the packed feature."""
    if len(columns) == 1:
        raise ComponentError(f"{file}: only the label, column {columns[0]!r}", "at least one more column", fix)
    sizes = [len(cell) if isinstance(cell, list) else 1 for cell in first_row]
    if settings.packed_feature and sizes:
        settings.packed_feature.check(settings.label, sum(sizes) - 1, file)
