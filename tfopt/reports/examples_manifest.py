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
    """Statistics of a feature.

    Attributes:
        dtype: ``int64``, ``float32`` or ``string``.
        shape: Shape of its values in one example; ``[None]`` if the number of values varies.
        missing: Number of examples without the feature.
        sparse: Its stored features, if it is sparse.
        distinct: Number of different words.
        distinct_is_exact: False if there are more words than are counted.
        top: The most frequent words, each with its count.
    """

    dtype: str = ""
    shape: list[int | None] | None = None
    missing: int | None = None
    sparse: SparseParts | None = None
    distinct: int | None = None
    distinct_is_exact: bool | None = None
    top: list[list[Any]] | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class RejectedRow:
    """A row that is not among the examples.

    Attributes:
        file: Name of the file, relative to the data.
        line: Line or index of the row, from 1; 0 for a whole file.
    """

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class RejectedRows:
    """The rows that are not among the examples.

    Attributes:
        shown: The first ones.
    """

    count: int
    shown: list[RejectedRow]


@dataclass(frozen=True)
class ExamplesManifest:
    """The content of ``examples.json``.

    Attributes:
        splits: Number of examples by split.
        features: Statistics by feature.
        label_counts: For each split, the number of examples by class index.
        classes: Names of the classes, by index.
        packed: For each packed feature, the names of its columns, in their order.
        notes: Remarks on the data, each with a number.
        read: Number of rows in the data.
        dropped: Number of rows that were left out because a value is missing; None if such rows are written.
        seed: Seed of the assignment of rows to splits.
    """

    schema_version: ClassVar[int] = 1
    splits: dict[str, int] | None = None
    features: dict[str, FeatureStatistics] | None = None
    label: str | None = None
    label_counts: dict[str, dict[str, int]] | None = None
    classes: list[str] | None = None
    packed: dict[str, list[str]] | None = None
    notes: list[str] | None = None
    read: int | None = None
    rejected: RejectedRows | None = None
    dropped: int | None = None
    seed: int | None = None
