"""The interface of readers: `Source` from the first inspection, then `Row` by row."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tfopt.components.prepare_examples.files import relative_name

TEXT_TABLES = ("csv", "tsv")
TABLES = (*TEXT_TABLES, "jsonl", "parquet")


@dataclass(frozen=True)
class Source:
    """The data files and their format, from the first inspection.

    Attributes:
        root: The file or folder of the data.
        files: Size in bytes of every data file.
        columns: Column names of a table.
        header: True if a CSV or TSV starts with them.
        types: Types of columns that the files contain.
        declared: Types of columns that the settings declare.
        classes: Sorted class folders of images.
        image: Height, width and channels of stored images.
        encoded: Feature of TFRecords that has an encoded image, and the name of the decoded one.
        shapes: Shapes of features, if the format has them.
    """

    format: str
    root: str
    files: dict[str, int]
    label: str
    columns: tuple[str, ...] = ()
    header: bool = False
    types: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    image: tuple[int, ...] = ()
    encoded: tuple[str, str] | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

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
    """A row, a damaged file, or the end of a file. It is a tuple because Beam pickles every single one.

    Attributes:
        file: Name of the file, relative to the data.
        line: Line or index of the row, from 1; 0 for a file.
        payload: The cells of a table's row as JSON, or a tf.Example.
        problem: The reason why the row cannot be used.
        damage: The error of a damaged file: received, expected, fix. As an exception of a worker it would lose them.
        end: True at the end of a file of ``line`` rows. It allows to detect rows that a runner lost.
    """

    file: str
    line: int
    payload: bytes = b""
    problem: str = ""
    damage: tuple[str, str, str] | None = None
    end: bool = False
