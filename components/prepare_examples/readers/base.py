"""What every reader gives: the source as its first look found it, then its rows one by one."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tfopt.components.prepare_examples.files import relative
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Source:
    """The data as a first look found them.

    Attributes:
        format: ``csv``, ``npz``, ``images`` or ``tfrecord``.
        root: The file or folder that was given.
        files: Every data file with its bytes.
        label: The name the label is stored under.
        columns: The names of a CSV's columns.
        header: Whether a CSV starts with them.
        classes: The class folders of images, sorted.
        image: The height, width and channels that images get.
        shapes: The shape of a feature where the format knows it.
    """

    format: str
    root: str
    files: dict[str, int]
    label: str
    columns: tuple[str, ...] = ()
    header: bool = False
    classes: tuple[str, ...] = ()
    image: tuple[int, ...] = ()
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def name(self, file: str) -> str:
        """A file's name as seen from `root`."""
        return relative(file, self.root)


class Row(NamedTuple):
    """One row, or why there is none. A plain tuple underneath, since Beam pickles every single one.

    Attributes:
        file: Where it comes from, as seen from the data.
        line: Its line, or its number, from 1; 0 for a whole file.
        payload: A CSV's cells as JSON, or a tf.Example.
        problem: Why the row cannot be used.
        damage: Why the file cannot be used: received, expected, fix.
        end: Whether the file ended here, ``line`` rows long. Rows that a runner lost are found by it.
    """

    file: str
    line: int
    payload: bytes = b""
    problem: str = ""
    damage: tuple[str, str, str] | None = None
    end: bool = False


def not_a_row(file: str, error: ComponentError) -> Row:
    """Carry a reader's refusal through the pipeline: an exception raised on a worker would lose its three parts."""
    return Row(file, 0, damage=(error.received, error.expected, error.fix))
