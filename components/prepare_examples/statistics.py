"""The first pass over all rows: what each column holds. Mergeable in any order, so that any runner finds the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfopt.components.prepare_examples import tf_example
from tfopt.components.prepare_examples.cells import Kind, kinds_of
from tfopt.components.prepare_examples.readers.base import Row, Source

SHOWN = 5
MOST_CLASSES = 10_000
MOST_PATTERNS = 1_000
NOTHING = [0] * len(Kind)
Place = tuple[str, int, str]
Pattern = tuple[tuple[str, ...], bytes]


@dataclass
class Rejects:
    """How many rows were refused, and the first few by file and line."""

    count: int = 0
    shown: list[Place] = field(default_factory=list)

    def add(self, row: Row, reason: str) -> None:
        """Count one."""
        self.merge(Rejects(1, [(row.file, row.line, reason[:200])]))

    def merge(self, other: "Rejects") -> None:
        """Count another's too."""
        self.count += other.count
        self.shown = sorted([*self.shown, *other.shown])[:SHOWN]


@dataclass
class Survey:
    """What was read.

    Attributes:
        rows: How many rows, the rejected ones among them.
        promised: How many rows the files had, by their readers' own count.
        files: How many files were read to their end.
        rejects: The rows that could not be read.
        damage: Files that could not be read: file, then received, expected, fix.
        patterns: How often rows had these columns with these kinds of values; few in most data.
        folded: Patterns summed up by column, once there were many.
        odd: The first text of each column.
        words: The label's different texts.
    """

    rows: int = 0
    promised: int = 0
    files: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    damage: list[tuple[str, tuple[str, str, str]]] = field(default_factory=list)
    patterns: dict[Pattern, int] = field(default_factory=dict)
    folded: dict[str, list[int]] = field(default_factory=dict)
    odd: dict[str, Place] = field(default_factory=dict)
    words: set[bytes] = field(default_factory=set)

    def add(self, row: Row, source: Source) -> None:
        """Take in one row."""
        if row.end:
            self.files += 1
            self.promised += row.line
        elif row.damage:
            self.damage = sorted([*self.damage, (row.file, row.damage)])[:SHOWN]
        else:
            self.rows += 1
            if row.problem:
                self.rejects.add(row, row.problem)
            else:
                self._look(row, source)

    def merge(self, other: "Survey") -> None:
        """Take in another's rows."""
        self.rows += other.rows
        self.promised += other.promised
        self.files += other.files
        self.rejects.merge(other.rejects)
        self.damage = sorted([*self.damage, *other.damage])[:SHOWN]
        for pattern, count in other.patterns.items():
            self._count(pattern, count)
        for name, counts in other.folded.items():
            self._fold(name, counts)
        for name, place in other.odd.items():
            self.odd[name] = min(place, self.odd.get(name, place))
        self.words = _capped(self.words | other.words)

    def kinds(self) -> dict[str, list[int]]:
        """For each column, how many of its values are of each `Kind`."""
        for (names, kinds), count in self.patterns.items():
            for name, found in zip(names, kinds, strict=True):
                self._fold(name, [count if kind == found else 0 for kind in Kind])
        self.patterns.clear()
        return self.folded

    def _look(self, row: Row, source: Source) -> None:
        names, kinds, values = _kinds(row, source)
        self._count((names, kinds), 1)
        if Kind.TEXT not in kinds:
            return
        for name, found, value in zip(names, kinds, values, strict=True):
            if found == Kind.TEXT:
                text = value.encode() if isinstance(value, str) else value[0]
                place = (row.file, row.line, text[:50].decode(errors="replace"))
                self.odd[name] = min(place, self.odd.get(name, place))
                if name == source.label and text not in self.words:
                    self.words = _capped(self.words | {text})

    def _count(self, pattern: Pattern, count: int) -> None:
        self.patterns[pattern] = self.patterns.get(pattern, 0) + count
        if len(self.patterns) > MOST_PATTERNS:
            self.kinds()

    def _fold(self, name: str, counts: list[int]) -> None:
        self.folded[name] = [a + b for a, b in zip(self.folded.get(name, NOTHING), counts, strict=True)]


def _kinds(row: Row, source: Source) -> tuple[tuple[str, ...], bytes, Sequence[Any]]:
    """Each value's column, its kind, and the values."""
    if source.format == "csv":
        cells = json.loads(row.payload)
        return source.columns, kinds_of(cells), cells
    features, types = tf_example.parse(row.payload)
    kinds = bytes(_kind_of(values, types[name]) for name, values in features.items())
    return tuple(features), kinds, list(features.values())


def _kind_of(values: Any, dtype: str) -> Kind:
    if dtype == "string":
        return Kind.TEXT
    if dtype == "int64":
        return Kind.INTEGER
    return Kind.NUMBER if np.isfinite(values).all() else Kind.NOT_FINITE


def _capped(words: set[bytes]) -> set[bytes]:
    return words if len(words) <= MOST_CLASSES + 1 else set(sorted(words)[: MOST_CLASSES + 1])
