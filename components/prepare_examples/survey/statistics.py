"""Statistics of rows and features, mergeable in any order, so that every Beam runner gives the same result."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfopt.components.prepare_examples.cells import Kind, encode, kind_of_value, kinds_of
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.survey.column_checks import ColumnChecks
from tfopt.data import tf_example
from tfopt.reports.examples_manifest import FeatureStatistics

SHOWN = 5
MOST_CLASSES = 10_000
MOST_PATTERNS = 1_000
LONGEST_WORD, MOST_WORDS, TOP = 100, 10_000, 10  # of a feature of texts
NO_VALUES = [0] * len(Kind)
STORED_KINDS = {"string": Kind.TEXT, "int64": Kind.INTEGER, "float32": Kind.NUMBER}
Location = tuple[str, int, str]
Pattern = tuple[tuple[str, ...], bytes]


@dataclass
class Rejects:
    """The number of rejected rows, and the first of them by file and line."""

    count: int = 0
    shown: list[Location] = field(default_factory=list)

    def add(self, row: Row, reason: str) -> None:
        """Add a row."""
        self.merge(Rejects(1, [(row.file, row.line, reason[:200])]))

    def merge(self, other: "Rejects") -> None:
        """Add other rejected rows."""
        self.count += other.count
        self.shown = sorted([*self.shown, *other.shown])[:SHOWN]


@dataclass
class Survey:
    """Statistics of all rows, from the first pass."""

    rows: int = 0  # number of rows, including the rejected ones
    expected_rows: int = 0  # number of rows according to the readers, counted at the end of each file
    files: int = 0  # number of files that were read to their end
    rejects: Rejects = field(default_factory=Rejects)
    # Files that could not be read: file, then received, expected, fix
    damage: list[tuple[str, tuple[str, str, str]]] = field(default_factory=list)
    # Number of rows with the same columns and kinds of values; most data have few patterns
    patterns: dict[Pattern, int] = field(default_factory=dict)
    kind_counts: dict[str, list[int]] = field(default_factory=dict)  # patterns added up by column, once there are many
    first_texts: dict[str, Location] = field(default_factory=dict)
    words: set[bytes] = field(default_factory=set)  # the distinct texts of the label
    incomplete: int = 0  # number of rows with a missing value
    first_missing: dict[str, Location] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)  # columns with lists
    checks: ColumnChecks = field(default_factory=ColumnChecks)

    def add(self, row: Row, source: Source) -> None:
        """Add one row."""
        if row.end:
            self.files += 1
            self.expected_rows += row.line
        elif row.damage:
            self.damage = sorted([*self.damage, (row.file, row.damage)])[:SHOWN]
        else:
            self.rows += 1
            if row.problem:
                self.rejects.add(row, row.problem)
            else:
                self._add_kinds(row, source)

    def merge(self, other: "Survey") -> None:
        """Add the rows of another survey."""
        self.rows += other.rows
        self.expected_rows += other.expected_rows
        self.files += other.files
        self.rejects.merge(other.rejects)
        self.damage = sorted([*self.damage, *other.damage])[:SHOWN]
        for pattern, count in other.patterns.items():
            self._count(pattern, count)
        for name, counts in other.kind_counts.items():
            self._fold(name, counts)
        _merge_first(self.first_texts, other.first_texts)
        _merge_first(self.first_missing, other.first_missing)
        self.incomplete += other.incomplete
        self.lists |= other.lists
        self.checks.merge(other.checks)
        self.words = _capped(self.words | other.words)

    def kinds(self) -> dict[str, list[int]]:
        """Return the number of values of each `Kind`, by column."""
        for (names, kinds), count in self.patterns.items():
            for name, own in zip(names, kinds, strict=True):
                self._fold(name, [count if kind == own else 0 for kind in Kind])
        self.patterns.clear()
        return self.kind_counts

    def _add_kinds(self, row: Row, source: Source) -> None:
        names, kinds, values = _kinds(row, source)
        self._count((names, kinds), 1)
        self.checks.add(names, values, source.label, is_text=source.has_text_cells)
        if source.is_table and not source.has_text_cells:
            self.lists.update(name for name, value in zip(names, values, strict=True) if isinstance(value, list))
        if Kind.MISSING in kinds:
            cells = zip(names, kinds, values, strict=True)
            # an empty list has no kind either, and is no missing value
            missing = [name for name, kind, value in cells if kind == Kind.MISSING and value != []]
            _merge_first(self.first_missing, dict.fromkeys(missing, (row.file, row.line, "")))
            self.incomplete += bool(missing)
        if Kind.TEXT not in kinds:
            return
        for name, kind, value in zip(names, kinds, values, strict=True):
            if kind == Kind.TEXT:
                items = [value] if isinstance(value, str) else value
                text = next(item for item in items if isinstance(item, str | bytes))
                text = encode(text) if isinstance(text, str) else text
                _merge_first(self.first_texts, {name: (row.file, row.line, text[:50].decode(errors="replace"))})
                if name == source.label and text not in self.words:
                    self.words = _capped(self.words | {text})

    def _count(self, pattern: Pattern, count: int) -> None:
        self.patterns[pattern] = self.patterns.get(pattern, 0) + count
        if len(self.patterns) > MOST_PATTERNS:
            self.kinds()

    def _fold(self, name: str, counts: list[int]) -> None:
        self.kind_counts[name] = [a + b for a, b in zip(self.kind_counts.get(name, NO_VALUES), counts, strict=True)]


def _kinds(row: Row, source: Source) -> tuple[tuple[str, ...], bytes, Sequence[Any]]:
    """Return the column names, the kind of each value as a byte, and the values."""
    if source.is_table:
        cells = json.loads(row.payload)
        return source.columns, _cell_kinds(cells, source), cells
    features, types = tf_example.parse(row.payload)
    finite = {name: types[name] != "float32" or np.isfinite(values).all() for name, values in features.items()}
    kinds = bytes(STORED_KINDS[types[name]] if is_finite else Kind.NOT_FINITE for name, is_finite in finite.items())
    return tuple(features), kinds, list(features.values())


def _cell_kinds(cells: list[Any], source: Source) -> bytes:
    if not source.has_text_cells:
        return bytes(map(kind_of_value, cells))
    kinds = kinds_of(cells)
    if "string" not in source.declared.values():
        return kinds
    texts = [source.declared.get(name) == "string" for name in source.columns]
    parts = zip(kinds, texts, cells, strict=True)
    return bytes(Kind.TEXT if text and cell.strip() else kind for kind, text, cell in parts)


def _merge_first(first: dict[str, Location], other: Mapping[str, Location]) -> None:
    for name, location in other.items():
        first[name] = min(location, first.get(name, location))


def _capped(words: set[bytes]) -> set[bytes]:
    return words if len(words) <= MOST_CLASSES + 1 else set(sorted(words)[: MOST_CLASSES + 1])


@dataclass
class FeatureSummary:
    """Count, range, mean and standard deviation of a numeric feature, or the most frequent words of a text feature."""

    dtype: str
    examples: int = 0  # number of examples that have the feature
    sizes: set[int] = field(default_factory=set)  # the distinct numbers of values in an example
    count: int = 0  # number of values
    mean: float = 0.0
    squares: float = 0.0  # sum of the squared deviations from the mean
    low: float | int | None = None
    high: float | int | None = None
    words: Counter[bytes] = field(default_factory=Counter)  # count of each word
    all_words: bool = True  # False if words are missing because there are too many or they are too long

    def add(self, batch: Sequence[tf_example.Values]) -> None:
        """Add the values of some examples."""
        self.merge(_summarize(self.dtype, batch))

    def merge(self, other: "FeatureSummary") -> None:
        """Add the examples of another summary (Chan's update: a plain sum of squares would cancel)."""
        self.examples += other.examples
        self.sizes |= other.sizes
        if other.count:
            total, gap = self.count + other.count, other.mean - self.mean
            self.squares += other.squares + gap * gap * self.count * other.count / total
            self.mean += gap * other.count / total
            self.count = total
        self.low = min((value for value in (self.low, other.low) if value is not None), default=None)
        self.high = max((value for value in (self.high, other.high) if value is not None), default=None)
        self.words.update(other.words)
        self.all_words &= other.all_words
        if len(self.words) > MOST_WORDS:
            self.all_words = False
            self.words = Counter(dict(sorted(self.words.items(), key=_by_frequency)[:MOST_WORDS]))

    def statistics(self, shape: tuple[int, ...] | None, examples: int) -> FeatureStatistics:
        """Return the entry of ``examples.json``; ``examples`` is the number of all examples."""
        size = next(iter(self.sizes)) if len(self.sizes) == 1 else None
        entry = FeatureStatistics(self.dtype, list(shape) if shape else [size], missing=examples - self.examples)
        if self.dtype == "string":
            top = sorted(self.words.items(), key=_by_frequency)[:TOP]
            return replace(
                entry,
                distinct=len(self.words),
                distinct_is_exact=self.all_words,
                top=[[word.decode(errors="replace"), count] for word, count in top],
            )
        if not self.count:
            return entry
        deviation = float(np.sqrt(self.squares / self.count))
        return replace(entry, min=self.low, max=self.high, mean=_short(self.mean), std=_short(deviation))


def _summarize(dtype: str, batch: Sequence[tf_example.Values]) -> FeatureSummary:
    summary = FeatureSummary(dtype, len(batch), {len(values) for values in batch})
    if dtype == "string":
        words = [word for values in batch for word in values]
        summary.words = Counter(word for word in words if len(word) <= LONGEST_WORD)
        summary.all_words = all(len(word) <= LONGEST_WORD for word in words)
        return summary
    if not batch:
        return summary
    if isinstance(batch[0], list):  # from a table, mostly one value each
        numbers = np.array([value for values in batch for value in values], dtype)
    else:
        numbers = np.concatenate([np.asarray(values, dtype) for values in batch])
    exact = numbers.astype(np.float64)
    summary.count, summary.mean = len(exact), float(exact.mean())
    summary.squares = float(np.square(exact - summary.mean).sum())
    low, high = numbers.min().item(), numbers.max().item()
    summary.low, summary.high = (low, high) if dtype == "int64" else (_short(low), _short(high))
    return summary


def _by_frequency(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return -item[1], item[0]


def _short(value: float) -> float:
    return float(f"{value:.9g}")  # the precision of a float32
