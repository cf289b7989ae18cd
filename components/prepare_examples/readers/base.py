"""The interface of readers: `Source` from the first inspection, then `Row` by row; checks common to all tables.

A reader is a module with two functions. ``inspect(source, settings)`` completes a source that has its files; it raises
ComponentError if they have no rows, cannot be used, or lack the label. ``read(file, source)`` yields the rows of a
file; it raises ComponentError if the file is damaged, or has other columns than the first one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfopt.components.prepare_examples.files import relative_name
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

TEXT_TABLES = ("csv", "tsv")
TABLES = (*TEXT_TABLES, "jsonl", "parquet")
LONG = 20  # columns; of more, a message shows the first and the last


@dataclass(frozen=True)
class Source:
    """The data files and their format, from the first inspection."""

    format: str
    root: str  # the file or folder of the data
    files: dict[str, int]  # size in bytes of every data file
    label: str
    columns: tuple[str, ...] = ()  # column names of a table
    header: bool = False  # True if a CSV or TSV starts with them
    types: dict[str, str] = field(default_factory=dict)  # types of columns that the files contain
    declared: dict[str, str] = field(default_factory=dict)  # types of columns that the settings declare
    classes: tuple[str, ...] = ()  # sorted class folders of images
    image: tuple[int, ...] = ()  # height, width and channels of stored images
    # Feature of TFRecords that has an encoded image, and the name of the decoded one
    encoded: tuple[str, str] | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of features, if the format has them

    @property
    def has_text_cells(self) -> bool:
        """True if a row is a list of texts, whose types are inferred or declared."""
        return self.format in TEXT_TABLES

    @property
    def is_table(self) -> bool:
        """True if a row is a list of cells, one for each column."""
        return self.format in TABLES

    def name(self, file: str) -> str:
        """Return the name of a file relative to `root`."""
        return relative_name(file, self.root)


class Row(NamedTuple):
    """A row, a damaged file, or the end of a file. It is a tuple because Beam pickles every single one."""

    file: str  # name of the file, relative to the data
    line: int  # line or index of the row, from 1; 0 for a file
    payload: bytes = b""  # the cells of a table's row as JSON, or a tf.Example
    problem: str = ""  # the reason why the row cannot be used
    # The error of a damaged file: received, expected, fix; an exception of a worker would lose them
    damage: tuple[str, str, str] | None = None
    end: bool = False  # True at the end of a file of `line` rows; it allows to detect rows that a runner lost


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
