"""Checks of columns against the label and against float32, mergeable in any order.

A column that determines the label one to one is most probably a copy of it, which is not known yet where the model is
used. Whole numbers beyond 2^24, such as identifiers, are rounded where they are stored as float32, so that several
become one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfopt.components.prepare_examples.cells import LONGEST

EXACT_BITS = 24  # of a float32's whole numbers
SHORT = 7  # digits that every float32 can hold
MOST_PAIRS = 100  # different values of a column that are compared with the label's
FEWEST_ROWS = 10  # with fewer, a column can fit the label by chance


@dataclass
class LabelPairs:
    """The values of a column and the labels of the same rows."""

    same: bool = True  # True if the values are the labels
    # The label of each value; None if there are too many values
    labels: dict[Any, Any] | None = field(default_factory=dict)

    def add(self, value: Any, label: Any) -> bool:
        """Add a value and a label; return False if they are not one to one any more."""
        self.same &= value == label
        if self.labels is not None:
            if value not in self.labels and label in self.labels.values():
                return False
            if self.labels.setdefault(value, label) != label:
                return False
            if len(self.labels) > MOST_PAIRS:
                self.labels = None
        return self.same or self.labels is not None

    def merge(self, other: "LabelPairs") -> bool:
        """Add the pairs of other rows; return False if they are not one to one any more."""
        self.same &= other.same
        if other.labels is None:
            self.labels = None
        pairs = (other.labels or {}).items()
        return all(self.add(value, label) for value, label in pairs) and (self.same or self.labels is not None)


@dataclass
class ColumnChecks:
    """Facts about the columns."""

    rows: int = 0  # number of rows with a label
    pairs: dict[str, LabelPairs] = field(default_factory=dict)  # the columns that are one to one with the label so far
    differing: set[str] = field(default_factory=set)  # the other columns
    # Number of whole numbers of each column that a float32 does not hold
    rounded: Counter[str] = field(default_factory=Counter)

    def add(self, names: Sequence[str], values: Sequence[Any], label: str, *, is_text: bool) -> None:
        """Add a row; ``is_text`` if all of its values are texts."""
        is_short = is_text and max(map(len, values)) <= SHORT  # a fast path for small numbers, such as pixels
        for name, value in () if is_short else zip(names, values, strict=True):
            if count := _count_rounded(value):
                self.rounded[name] += count
        if label not in names or (own := _key(values[names.index(label)])) is None:
            return
        self.rows += 1
        if len(self.differing) >= len(names) - 1:
            return
        for name, value in zip(names, values, strict=True):
            if name != label and name not in self.differing:
                self._store(name, self.pairs.setdefault(name, LabelPairs()).add(_key(value), own))

    def merge(self, other: "ColumnChecks") -> None:
        """Add other rows."""
        self.rows += other.rows
        self.rounded.update(other.rounded)
        self.differing |= other.differing
        for name, pairs in other.pairs.items():
            own = self.pairs.setdefault(name, LabelPairs())
            self._store(name, own.merge(pairs))
        for name in self.differing & self.pairs.keys():
            del self.pairs[name]

    def notes(self, label: str, as_float: Collection[str]) -> list[str]:
        """Return a note for each column that is one to one with the label, or has numbers that float32 rounds.

        The columns ``as_float`` are stored as float32.
        """
        notes = []
        for name, pairs in sorted(self.pairs.items()) if self.rows >= FEWEST_ROWS else ():
            if pairs.labels is None or len(pairs.labels) > 1:
                fact = "equals" if pairs.same else "determines"
                notes.append(
                    f"column {name!r} {fact} the label {label!r} in all {self.rows} rows: remove it unless it is known "
                    "before the label is"
                )
        for name in sorted(self.rounded.keys() & set(as_float)):
            notes.append(
                f"column {name!r}: {self.rounded[name]} whole numbers beyond {1 << EXACT_BITS} are rounded, because it "
                "is stored as float32: different identifiers can become one"
            )
        return notes

    def _store(self, name: str, is_one_to_one: bool) -> None:
        if not is_one_to_one:
            del self.pairs[name]
            self.differing.add(name)


def one_class_notes(label_counts: Mapping[str, Mapping[str, int]], classes: Sequence[str]) -> list[str]:
    """Return a note if all examples, or all of a split, have the same label."""

    def name(number: str) -> str:
        return f"{number} ({classes[int(number)]})" if classes else number

    totals: dict[str, Mapping[str, int]] = {f"split {split!r}": counts for split, counts in label_counts.items()}
    total = sum(map(Counter, label_counts.values()), Counter[str]())
    if len(total) == 1:
        totals = {"the data": total}
    return [
        f"all {sum(counts.values())} examples of {where} have the label {name(next(iter(counts)))}"
        for where, counts in totals.items()
        if len(counts) == 1
    ]


def _count_rounded(value: Any) -> int:
    if isinstance(value, str):
        is_whole = SHORT < len(value) <= LONGEST and value.strip().lstrip("+-").isdecimal()
        return int(is_whole and not _is_exact(int(value)))
    if isinstance(value, np.ndarray):
        return int((value.astype(np.float32).astype(np.int64) != value).sum()) if value.dtype == np.int64 else 0
    items = value if isinstance(value, list) else [value]
    return sum(isinstance(item, int) and not _is_exact(item) for item in items)


def _is_exact(number: int) -> bool:
    """Return True if a float32 holds the integer.

    >>> [_is_exact(number) for number in (0, 2**24, 2**24 + 1, 2**24 + 2, -(2**60), 2**60 + 1)]
    [True, True, False, True, True, False]
    """
    trailing = (number & -number).bit_length() - 1 if number else 0
    return (abs(number) >> trailing).bit_length() <= EXACT_BITS


def _key(value: Any) -> Any:
    """Return a value that can be compared; numbers in texts as numbers, None if there is none."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value.strip() or None
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.size <= MOST_PAIRS else None
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else tuple(map(str, value)) or None
    return value
