"""Inspect the columns of a table for `tfopt init`: numbers, words, dates, what is left out, and the label."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from keyword import iskeyword
from typing import Any

import numpy as np

from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.prepare import check_rejects
from tfopt.components.prepare_examples.readers.base import TABLES, Row, Source
from tfopt.components.prepare_examples.readers.detect import inspect_source, read_rows
from tfopt.components.prepare_examples.schema import decide_schema
from tfopt.components.prepare_examples.survey.statistics import Rejects, Survey
from tfopt.errors import ComponentError

ROWS = 100_000  # that are read
WORDS = 200  # of a column that the model distinguishes
MOST_CLASSES = 1000  # of a label of integers; with more of them it is a number
RARE = 10  # rows of a word that has a place of its own, or a hundredth of a small table, but at least 2
COVERED = 0.5  # of the rows have a frequent word; else the column has names or free text
RARE_CLASS = 0.2  # of the rows that the rarest of equally frequent classes would have
SKEWED = 1.0  # skewness of a label that is predicted as its logarithm, if that halves it
ID_NAME = re.compile(r"(?i:(.*[^a-z])?(id|key|uuid|guid|index|rowid|nr))|.*[a-z](Id|ID|Key)")
INPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DAY = {"year": (0, 4), "month": (5, 7), "day": (8, 10)}
EUROPEAN = {"day": (0, 2), "month": (3, 5), "year": (6, 10)}
AMERICAN = {"month": (0, 2), "day": (3, 5), "year": (6, 10)}
DATE = re.compile(r"(?:\d{4}([-/.])\d\d\1\d\d|\d\d([-/.])\d\d\2\d{4})(?:[T ]\d\d:\d\d\S*)?")
SHORT_DATE = re.compile(r"\d{1,2}([-/.])\d{1,2}\1\d{2,4}(?:\s.*)?|\d{4}([-/.])\d{1,2}\2\d{1,2}(?:\s.*)?")
YEAR_FIRST, DAY_FIRST, MONTH_FIRST = r"\d{4}", r"(1[3-9]|[23]\d)\D", r"\d\d\D(1[3-9]|[23]\d)\D\d{4}"
# 1,234.50  1.234,50  $ 1234  12.5 %  3.5 kg
WRITTEN_NUMBER = re.compile(r"[^\w\s]?\s?[-+]?\d+(?:[.,' \u00a0\u202f]\d+)*\s?(?:[^\W\d_]{2,3}|[^\w\s])?")
Places = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Number:
    """A column of numbers: mean and standard deviation of those that are present, and what stands for a missing one."""

    mean: float
    deviation: float
    missing: float | None = None


@dataclass(frozen=True)
class Date:
    """A column of dates: places of year, month, day and hour in the text, and the scale of the dates in years."""

    places: Places
    mean: float
    deviation: float


@dataclass(frozen=True)
class Target:
    """The scale of a label that is a number to predict, of its logarithm if it is skewed."""

    mean: float  # mean of the labels, or of log(1 + label)
    deviation: float  # their standard deviation
    logarithm: bool  # True for logarithms
    low: float  # the lowest of them
    high: float  # the highest of them


@dataclass
class TableColumns:
    """The columns of a table, from its first rows. A feature has the name of its column, without unusual characters."""

    label: str
    rows: int  # number of usable rows that were read
    all_rows: bool  # True if the table has no others
    classes: int = 0  # number of classes; 0 if the label is a number to predict
    target: Target | None = None  # the scale of such a label
    has_rare_class: bool = False  # True if a class is so rare that it needs weights
    missing_words: bool = False  # True if words or dates are missing
    numbers: dict[str, Number] = field(default_factory=dict)  # the features that are numbers
    words: dict[str, list[str]] = field(default_factory=dict)  # the frequent words of each feature of words, sorted
    dates: dict[str, Date] = field(default_factory=dict)  # the features that are texts of dates
    # The features with other names than their columns, with these
    renamed: dict[str, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)  # what `prepare_examples` takes as `columns`
    left_out: dict[str, str] = field(default_factory=dict)  # the columns that the model does not take, with the reason

    def add(self, column: str, feature: str, dtype: str, cells: Sequence[Any]) -> None:
        """Add a column; `cells` has None for a missing value."""
        present = [cell for cell in cells if cell is not None]
        missing: float | None = None
        if reason := _unfit(column, present, len(cells)):
            self.left_out[column] = reason
            return
        values = [cell[0] for cell in present]
        if dtype != "string":
            missing = _absent_number(values, dtype) if len(present) < len(cells) else None
            self.numbers[feature] = _scale(values, missing)
        else:
            texts = [value.decode(errors="replace") for value in values]
            reason = self._add_texts(feature, texts, len(cells))
            if reason:
                self.left_out[column] = reason
                return
            self.missing_words |= len(present) < len(cells)
        if feature != column:
            self.renamed[feature] = column
        if missing is not None:
            self.declared.append(f"{column}:{dtype} or {missing:.0f}")

    def _add_texts(self, feature: str, texts: Sequence[str], rows: int) -> str | None:
        """Add a column of dates or words; return the reason if it is none of these."""
        if _share(texts, DATE.fullmatch) > 0.99:
            if not _has_one_notation(texts):
                return "dates in several notations; write them as 2025-03-01"
            self.dates[feature] = _date(texts)
            return None
        if _share(texts, SHORT_DATE.fullmatch) > 0.99:
            return "dates whose parts have no fixed place; write them as 2025-03-01"
        counts = Counter(texts)
        rare = max(2, min(RARE, rows // 100))
        frequent = [word for word, count in counts.most_common(WORDS) if count >= rare]
        if sum(counts[word] for word in frequent) < COVERED * len(texts):
            if _share(texts, WRITTEN_NUMBER.fullmatch) > 0.99:
                return f"numbers with separators or units, such as {texts[0][:20]!r}; write them as 1234.5"
            return f"{len(counts):,} different texts in {len(texts):,} rows: ids, names or free text"
        self.words[feature] = sorted([*frequent, ""] if len(texts) < rows else frequent)
        return None

    def add_label(self, labels: Sequence[Any], dtype: str, classes: int) -> None:
        """Add the label, whose words are numbered already."""
        self.classes = classes or _class_count(labels, dtype)
        if self.classes:
            counts = Counter(labels)
            self.has_rare_class = min(counts.values()) * len(counts) < RARE_CLASS * len(labels)
        else:
            self.target = _target(np.asarray(labels, np.float64))
            if dtype == "int64":  # the steps take integers for classes
                self.declared.append(f"{self.label}:float32")


def inspect_table(data: str, label: str) -> TableColumns:
    """Read the first rows of a table, with the readers and rules of `prepare_examples`.

    Raises:
        ComponentError: If the data are no table, cannot be read, have no such label, or too many unusable rows.
    """
    settings = Settings(label=label)
    source = inspect_source(data, settings)
    if source.format not in TABLES:
        fix = "write a module with build_model() (docs/training.md) and a run file (docs/run_file.md) for these data"
        raise ComponentError(f"{data}: {source.format} files", f"a table: {', '.join(TABLES)}", fix)
    rows = list(islice(_rows(source), ROWS + 1))
    survey, all_rows = Survey(), len(rows) <= ROWS
    for row in rows[:ROWS]:
        survey.add(row, source)
    schema = decide_schema(survey, source, settings)
    rejects = Rejects()
    values, _ = schema.usable(rows[:ROWS], source, rejects)
    try:
        check_rejects(survey.rows, rejects, source, settings)
    except ComponentError as error:  # `tfopt init` has no max_rejected
        fix = "fix those rows, and remove those without a label; elsewhere an empty cell or NA is a missing value"
        raise ComponentError(error.received, error.expected, fix) from error
    if not values:
        raise ComponentError(f"{data}: no usable row in the first {len(rows):,}", "rows with a label", "check the data")
    columns = TableColumns(label, len(values), all_rows)
    names = _feature_names([name for name in schema.columns if name != label])
    for column, feature in names.items():
        columns.add(column, feature, schema.types[column], [features.get(column) for features in values])
    if not columns.numbers and not columns.words and not columns.dates:
        received = f"{data}: no column that a model can take: {next(iter(columns.left_out.values()), 'only the label')}"
        expected = "at least one column with different numbers, words or dates"
        raise ComponentError(received, expected, "check the data, or write the module yourself")
    columns.add_label([features[label][0] for features in values], schema.types[label], len(schema.classes))
    return columns


def _rows(source: Source) -> Iterator[Row]:
    for file in source.files:
        for row in read_rows(file, source):
            if row.damage:
                raise ComponentError(*row.damage)
            if not row.end:
                yield row


def _feature_names(columns: Sequence[str]) -> dict[str, str]:
    """Return a name for each column that a SavedModel can have as an input: ASCII, and no word of Python.

    >>> list(_feature_names(["area m2", "area_m2", "2 rooms", "größe", "価格", "class"]).values())
    ['area_m2_2', 'area_m2', 'x2_rooms', 'gro_e', 'column', 'xclass']
    """
    used = {column for column in columns if _is_input_name(column)}
    names = {}
    for column in columns:
        name = column
        if column not in used:
            letters = [letter for letter in unicodedata.normalize("NFKD", column) if not unicodedata.combining(letter)]
            stem = re.sub(r"[^0-9A-Za-z]+", "_", "".join(letters)).strip("_") or "column"
            stem = stem if _is_input_name(stem) else f"x{stem}"
            choices = (stem, *(f"{stem}_{number}" for number in range(2, len(columns) + 2)))
            name = next(choice for choice in choices if choice not in used)
        used.add(name)
        names[column] = name
    return names


def _is_input_name(name: str) -> bool:
    return bool(INPUT_NAME.fullmatch(name)) and not iskeyword(name)


def _unfit(column: str, present: Sequence[Any], rows: int) -> str | None:
    if any(len(cell) != 1 for cell in present):
        return "it has lists"
    values = [cell[0] for cell in present]
    different = set(values)
    if len(different) < 2 and len(present) == rows:
        return "all of its values are the same"
    if not different:
        return "it has no values"
    if isinstance(values[0], int) and len(different) == len(values) > 20:
        if max(values) - min(values) + 1 == len(values):
            return "whole numbers without a gap, one for each row: an id"
        if ID_NAME.fullmatch(column):
            return "a different whole number in each row, and the name of an id"
    return None


def _absent_number(values: Sequence[float], dtype: str) -> float:
    """Return a power of ten, negative, below all values, that float32 holds exactly."""
    choices = (-float(10**power) for power in range(11))
    absent = next((choice for choice in choices if choice < min(values)), None)
    if absent is None:
        return 2 * min(values) if dtype == "int64" else float(np.float32(2 * min(values)))
    return absent


def _scale(values: Sequence[float], missing: float | None) -> Number:
    numbers = np.asarray(values, np.float64)
    return Number(_rounded(numbers.mean()), _rounded(numbers.std()) or 1.0, missing)


def _share(texts: Sequence[str], test: Callable[[str], object]) -> float:
    return sum(bool(test(text)) for text in texts) / len(texts)


def _has_one_notation(texts: Sequence[str]) -> bool:
    """Return whether nearly all dates begin with the year, with the month, or with the day."""
    year, day, month = (_share(texts, re.compile(start).match) for start in (YEAR_FIRST, DAY_FIRST, MONTH_FIRST))
    return not 0.01 < year < 0.99 and min(day, month) <= 0.01


def _date(texts: Sequence[str]) -> Date:
    """Find the places of the parts of dates: 2025-03-01, 01.03.2025, 01/03/2025 if a first number is above 12."""
    year_first = _share(texts, re.compile(YEAR_FIRST).match) > 0.5
    if year_first:
        places = DAY
    else:
        is_american = _share(texts, lambda text: int(text[:2]) > 12 if text[:2].isdecimal() else 0) < 0.001
        places = AMERICAN if is_american and "." not in texts[0] else EUROPEAN
    has_hours = len({text[11:13] for text in texts}) > 1
    places = places | ({"hour": (11, 13)} if has_hours else {})
    in_years = [
        sum(int(text[slice(*places[part])]) / parts for part, parts in (("year", 1), ("month", 12), ("day", 372)))
        for text in texts
        if DATE.fullmatch(text) and text[:4].isdecimal() == year_first
    ]
    number = _scale(in_years, None)
    return Date(places, number.mean, number.deviation)


def _target(labels: Any) -> Target:
    logarithm = bool(labels.min() >= 0 and _skewness(labels) > SKEWED)
    logarithm = logarithm and abs(_skewness(np.log1p(labels))) < _skewness(labels) / 2
    values = np.log1p(labels) if logarithm else labels
    numbers = values.mean(), values.std() or 1.0, values.min(), values.max()
    mean, deviation, low, high = map(_rounded, numbers)
    return Target(mean, deviation, logarithm, low, high)


def _skewness(values: Any) -> float:
    return float(((values - values.mean()) ** 3).mean() / (values.std() ** 3 or 1.0))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _class_count(labels: Sequence[Any], dtype: str) -> int:
    """Return the number of classes of a label of integers from 0; 0 if it is a number to predict."""
    if dtype != "int64" or min(labels) < 0 or max(labels) >= min(MOST_CLASSES, max(3, math.isqrt(len(labels)) * 2)):
        return 0
    return int(max(labels)) + 1
