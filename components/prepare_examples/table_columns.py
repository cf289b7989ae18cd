"""Inspect the columns of a table for `tfopt init`: numbers with their scale, words, and the kind of the label."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tfopt.components.prepare_examples.cells import MissingError, UnusableError
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import TABLES, Row, Source
from tfopt.components.prepare_examples.readers.detect import inspect_source, read_rows
from tfopt.components.prepare_examples.schema import Features, Schema, decide_schema
from tfopt.components.prepare_examples.survey.statistics import Survey
from tfopt.errors import ComponentError

ROWS = 100_000  # that are read
WORDS = 200  # of a column that the model distinguishes
UNFIT_NAME = "its name has characters other than letters, digits and underscores; rename it to use it"
MOST_CLASSES = 1000  # of a label of integers; with more of them it is a number


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, from its first rows.

    Attributes:
        rows: Number of usable rows that were read.
        all_rows: True if the table has no others.
        incomplete: True if values are missing.
        classes: Number of classes; 0 if the label is a number to predict.
        numbers: Mean and standard deviation of each column of numbers.
        words: The most frequent words of each column of words, sorted.
        left_out: The columns that the model does not take, with the reason.
    """

    rows: int
    all_rows: bool
    incomplete: bool
    label: str
    classes: int
    numbers: dict[str, tuple[float, float]]
    words: dict[str, list[str]]
    left_out: dict[str, str]


def inspect_table(data: str, label: str) -> TableColumns:
    """Read the first rows of a table, with the readers and rules of `prepare_examples`.

    Raises:
        ComponentError: If the data are no table, cannot be read, or have no such label.
    """
    settings = Settings(label=label, missing="default")
    source = inspect_source(data, settings)
    if source.format not in TABLES:
        raise ComponentError(
            f"{data}: {source.format} files",
            f"a table: {', '.join(TABLES)}",
            "write a module with build_model() (docs/training.md) and a run file (docs/run_file.md) for these data",
        )
    rows = list(islice(_rows(source), ROWS + 1))
    survey, all_rows = Survey(), len(rows) <= ROWS
    for row in rows[:ROWS]:
        survey.add(row, source)
    schema = decide_schema(survey, source, settings)
    values = list(_features(rows[:ROWS], schema, source))
    if not values:
        raise ComponentError(f"{data}: no usable row in the first {len(rows):,}", "rows with a label", "check the data")
    columns = {name: [features[name] for features in values] for name in schema.types}
    labels = [value[0] for value in columns.pop(label)]
    numbers, words, left_out = {}, {}, {}
    for name, cells in columns.items():
        if reason := _unfit(name, cells, schema.types[name]):
            left_out[name] = reason
        elif schema.types[name] == "string":
            words[name] = _frequent_words(cells)
        else:
            numbers[name] = _scale(cells)
    if not numbers and not words:
        unfit = next((name for name, reason in left_out.items() if reason == UNFIT_NAME), None)
        rename = (
            unfit and f"rename the columns in the data, such as {unfit!r} to {re.sub('[^0-9A-Za-z_]+', '_', unfit)!r}"
        )
        raise ComponentError(
            f"{data}: no column that a model can take: {next(iter(left_out.values()), 'there is only the label')}",
            "at least one column with different numbers or words",
            rename or "check the data, or write the module yourself",
        )
    classes = len(schema.classes) or _class_count(labels, schema.types[label])
    incomplete = bool(survey.incomplete)
    return TableColumns(len(values), all_rows, incomplete, label, classes, numbers, words, left_out)


def _rows(source: Source) -> Iterator[Row]:
    for file in source.files:
        for row in read_rows(file, source):
            if row.damage:
                raise ComponentError(*row.damage)
            if not row.end and not row.problem:
                yield row


def _features(rows: Sequence[Row], schema: Schema, source: Source) -> Iterator[Features]:
    for row in rows:
        try:
            yield schema.features(row, source)
        except (UnusableError, MissingError):
            continue


def _unfit(name: str, cells: Sequence[Any], dtype: str) -> str | None:
    if not re.fullmatch(r"\w+", name):  # `train` passes no other features to a module
        return UNFIT_NAME
    if any(len(cell) != 1 for cell in cells):
        return "it has lists"
    different = len({cell[0] for cell in cells})
    if different == 1:
        return "all of its values are the same"
    if dtype == "string" and different > max(WORDS, len(cells) // 2):
        return f"{different:,} different texts in {len(cells):,} rows: names or free text"
    return None


def _frequent_words(cells: Sequence[Any]) -> list[str]:
    counts = Counter(cell[0].decode(errors="replace") for cell in cells)
    return sorted(word for word, _ in counts.most_common(WORDS) if word)


def _scale(cells: Sequence[Any]) -> tuple[float, float]:
    values = np.asarray([cell[0] for cell in cells], np.float64)
    return _rounded(float(values.mean())), _rounded(float(values.std())) or 1.0


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _class_count(labels: Sequence[Any], dtype: str) -> int:
    """Return the number of classes of a label of integers from 0; 0 if it is a number to predict."""
    if dtype != "int64" or min(labels) < 0 or max(labels) >= min(MOST_CLASSES, max(3, math.isqrt(len(labels)) * 2)):
        return 0
    return int(max(labels)) + 1
