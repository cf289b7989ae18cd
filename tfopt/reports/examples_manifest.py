"""The content of ``examples.json``: splits, feature statistics, classes and rejected rows of prepared examples.

Every key may be missing, because other programs may write the file too.
"""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class SparseParts:
    """The stored features of a sparse feature."""

    positions: str
    values: str


@dataclass(frozen=True)
class FeatureStatistics:
    """Statistics of a feature."""

    dtype: str = ""  # ``int64``, ``float32`` or ``string``
    # shape of its values in one example; ``[None]`` if the number of values varies
    shape: list[int | None] | None = None
    missing: int | None = None  # number of examples without the feature
    sparse: SparseParts | None = None  # its stored features, if it is sparse
    distinct: int | None = None  # number of different words
    distinct_is_exact: bool | None = None  # False if there are more words than are counted
    top: list[list[Any]] | None = None  # the most frequent words, each with its count
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class RejectedRow:
    """A row that is not among the examples."""

    file: str  # name of the file, relative to the data
    line: int  # line or index of the row, from 1; 0 for a whole file
    reason: str


@dataclass(frozen=True)
class RejectedRows:
    """The rows that are not among the examples."""

    count: int
    shown: list[RejectedRow]  # the first ones


@dataclass(frozen=True)
class ExamplesManifest:
    """The content of ``examples.json``."""

    schema_version: ClassVar[int] = 1
    splits: dict[str, int] | None = None  # number of examples by split
    features: dict[str, FeatureStatistics] | None = None  # statistics by feature
    label: str | None = None
    label_counts: dict[str, dict[str, int]] | None = None  # for each split, the number of examples by class index
    classes: list[str] | None = None  # names of the classes, by index
    packed: dict[str, list[str]] | None = None  # for each packed feature, the names of its columns, in their order
    notes: list[str] | None = None  # remarks on the data, each with a number
    read: int | None = None  # number of rows in the data
    rejected: RejectedRows | None = None
    # number of rows that were left out because a value is missing; None if such rows are written
    dropped: int | None = None
    seed: int | None = None  # seed of the assignment of rows to splits
