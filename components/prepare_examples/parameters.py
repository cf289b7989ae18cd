"""Parameters of `prepare_examples`, and their parsers."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from tfopt.component import Between, Names, Reads
from tfopt.data.tf_example import FIELDS
from tfopt.errors import ComponentError
from tfopt.measurement.goals import GOAL_MAPPING, read_goals


@dataclass(frozen=True)
class Splits:
    """Names and integer weights of the splits, in the declared order."""

    weights: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """Parse ``["train:8", "eval:2"]``; raise ComponentError if the syntax differs, or a name occurs twice."""
        matches = [re.fullmatch(r"([A-Za-z0-9_.-]+):([1-9][0-9]*)", text.strip()) for text in texts]
        names = [match[1] for match in matches if match]
        if not texts or None in matches or len(set(names)) < len(texts):
            expected = "different names (letters, digits, _ . -) with whole weights from 1"
            raise ComponentError(f"splits={list(texts)}", expected, 'write splits=["train:8", "eval:2"]')
        return cls(tuple((match[1], int(match[2])) for match in matches if match))

    @property
    def names(self) -> list[str]:
        """The names, in the declared order."""
        return [name for name, _ in self.weights]

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return sum(weight for _, weight in self.weights)

    def at(self, position: int) -> str:
        """Return the split of a 64-bit position; each split has its weight's share of the range.

        >>> Splits.parse(["train:3", "eval:1"]).at(2**63)
        'train'
        """
        slot = position * self.total >> 64
        for name, weight in self.weights:
            slot -= weight
            if slot < 0:
                return name
        raise ValueError(position)


@dataclass(frozen=True)
class Pack:
    """A float feature that contains all values of a row except the label."""

    name: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``image=28x28x1``; raise ComponentError if the syntax differs."""
        match = re.fullmatch(r"([^=\s]+)=([1-9][0-9]*(?:x[1-9][0-9]*)*)", text.strip())
        if not match:
            raise ComponentError(f"pack={text!r}", "a name and its sizes", 'write pack="image=28x28x1"')
        return cls(match[1], tuple(int(size) for size in match[2].split("x")))

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        """Return the text that `parse` accepts."""
        return f"{self.name}={'x'.join(map(str, self.shape))}"

    def check(self, label: str, size: int, source: str) -> None:
        """Raise ComponentError unless ``source`` has as many values as the feature, and the label another name."""
        if self.name == label:
            raise ComponentError(f"pack={self}, and the label is {label!r} too", "two names", "pack under another name")
        if self.size != size:
            received = f"pack={self}: {self.size} values; {source} has {size} besides {label!r}"
            raise ComponentError(received, f"{size} values", "give sizes whose product is that number")


@dataclass(frozen=True)
class Sparse:
    """A sparse feature, stored as two features: the positions of its values, and the values."""

    name: str
    positions: str
    values: str
    size: int

    @classmethod
    def parse(cls, texts: Sequence[str]) -> tuple[Self, ...]:
        """Parse ``["words=word_ids:counts:5000"]``; raise ComponentError as `Splits.parse` does."""
        matches = [re.fullmatch(r"(\w+)=([^:=\s]+):([^:=\s]+):([1-9][0-9]*)", text.strip()) for text in texts]
        names = [name for match in matches if match for name in match.groups()[:3]]
        if None in matches or len(set(names)) < len(names):
            expected = "a new name, the feature with positions, the one with values, and the number of positions"
            fix = 'write sparse=["words=word_ids:counts:5000"], with different names'
            raise ComponentError(f"sparse={list(texts)}", expected, fix)
        return tuple(cls(match[1], match[2], match[3], int(match[4])) for match in matches if match)


def parse_names(texts: Sequence[str]) -> dict[str, str]:
    """Return the new names by feature, from ``["x=input_layer"]``; raise ComponentError as `Splits.parse` does."""
    pairs = [text.strip().rpartition("=")[::2] for text in texts]
    names = dict(pairs)
    if not all(map(all, pairs)) or len(names) < len(pairs) or len(set(names.values())) < len(pairs):
        received = f"rename={list(texts)}"
        raise ComponentError(received, "different features and different new names", 'write rename=["x=input_layer"]')
    return names


@dataclass(frozen=True)
class Column:
    """A declared column of a table."""

    dtype: str  # int64, float32 or string
    # The value that is stored for a missing one; None for the policy of `missing`
    default: int | float | bytes | None = None


def parse_columns(texts: Sequence[str]) -> dict[str, Column]:
    """Return the declared columns by name, from ``["age:int64 or -1", "name:string"]``.

    Raises:
        ComponentError: If the syntax, a type or a value differs, or a name occurs twice.
    """
    pattern = rf"(.+):({'|'.join(FIELDS)})(?: or (\S+))?"
    matches = [re.fullmatch(pattern, text.strip()) for text in texts]
    try:
        columns = {
            match[1]: Column(match[2], _default(match[2], match[3]) if match[3] else None) for match in matches if match
        }
    except ValueError:
        columns = {}
    if len(columns) < len(matches):
        expected = f"different names, each with its type ({', '.join(sorted(FIELDS))}), a value for missing ones"
        raise ComponentError(f"columns={list(texts)}", expected, 'write columns=["age:int64", "name:string or none"]')
    return columns


def _default(dtype: str, text: str) -> int | float | bytes:
    if dtype == "string":
        return text.encode()
    number = int(text) if dtype == "int64" else float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


@dataclass(frozen=True)
class Settings:
    """Parameters of the preparation.

    Attributes:
        label: The column, array or feature to predict. It is stored under this name.
        label_at: Position of the label in a CSV or TSV without a header; the other columns are named ``c0``, ``c1``, ….
        splits: Names with integer weights, ``NAME:WEIGHT``.
        pack: Stores all values except the label as one float feature, in the columns' order: ``NAME=SIZExSIZE…``, such
            as ``image=28x28x1``. For images it is required: the feature's name, and the size they are resized to. In
            TFRecords with a feature of encoded images (JPEG, PNG, …), the decoded image replaces that feature, and
            other features remain.
        format: Format of the files; ``auto`` derives it from their names.
        files: Names of the files to read, relative to the data, with ``*`` for any characters; all files if empty.
        header: States if a CSV or TSV starts with column names. ``auto`` treats its first row as names if the label is
            among them or none is a number.
        columns: For tables (CSV, TSV, JSON lines, Parquet): types of columns, ``NAME:TYPE`` with ``int64``, ``float32``
            or ``string``. A value that does not fit makes its row unusable. A declared ``int64`` takes ``3.0`` too.
            ``NAME:TYPE or VALUE`` stores that value for a missing one.
        missing: For tables: treatment of missing values, which are an empty cell, a JSON null or absent key, a Parquet
            null, and in CSV and TSV the words that pandas reads as missing, such as ``NA``, ``null`` and ``NaN``. A
            declared ``string`` contains such words as texts. ``omit`` writes the example without that feature,
            ``default`` writes 0 or an empty text, ``drop`` leaves the row out and counts it, ``error`` refuses the
            data. A row without a label is unusable with ``omit`` and ``default``.
        max_rejected: Largest accepted fraction of unusable rows (wrong column count, unparsable number, NaN,
            undecodable image, no label).
        seed: Seed of the assignment of rows to splits.
        goals: The goals of `select_model`. A goal on accuracy that the evaluated split cannot show, because it has too
            few records, is refused before anything is trained.
        metrics: The metrics of `evaluate`; if there are any, the goal quality is not about accuracy.
        confidence: As in `select_model`; with ``estimate`` no goal is refused.
        classes: Names of the classes of a label of words, or of class folders, in the order of their numbers; by
            default the sorted words. With it, classes have the same numbers in all examples, also where one of them
            does not occur. A row with another class is unusable.
        sparse: For TFRecords: sparse features, ``NAME=POSITIONS:VALUES:SIZE``, each from a feature with positions from
            0 to SIZE - 1 and one with as many values.
        rename: New names of features, ``FEATURE=NAME``, such as those of a model's inputs. A single input needs none:
            the only feature that fits feeds it.
    """

    label: str = "label"
    label_at: Literal["last", "first"] = "last"
    splits: Annotated[tuple[str, ...], Reads(Splits.parse, ("train:8", "eval:2")), Names()] = ("train:8", "eval:2")
    pack: Annotated[str, Reads(Pack.parse, "image=28x28x1")] | None = None
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "npz", "images", "tfrecord"] = "auto"
    files: tuple[str, ...] = ()
    header: Literal["auto", "yes", "no"] = "auto"
    columns: Annotated[tuple[str, ...], Reads(parse_columns, ("age:int64 or -1",))] = ()
    missing: Literal["omit", "default", "drop", "error"] = "omit"
    max_rejected: Annotated[float, Between(0, 1)] = 0.01
    seed: int = 0
    classes: tuple[str, ...] = ()
    sparse: Annotated[tuple[str, ...], Reads(Sparse.parse, ("words=word_ids:counts:5000",))] = ()
    rename: Annotated[tuple[str, ...], Reads(parse_names, ("x=input_layer",))] = ()
    goals: Annotated[tuple[str, ...], Reads(read_goals, ("quality max_degradation 1%",), GOAL_MAPPING)] = ()
    metrics: tuple[str, ...] = ()
    confidence: Literal["interval", "estimate", "point"] = "interval"

    @property
    def parsed_splits(self) -> Splits:
        """The splits with their weights."""
        return Splits.parse(self.splits)

    @property
    def packed_feature(self) -> Pack | None:
        """The feature that all columns except the label are packed into."""
        return Pack.parse(self.pack) if self.pack else None

    @property
    def sparse_features(self) -> tuple[Sparse, ...]:
        """The sparse features."""
        return Sparse.parse(self.sparse)
