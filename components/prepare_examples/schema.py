"""Schema: the type of every column, decided from the survey, and conversion of rows to these types."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tfopt.components.prepare_examples import cells
from tfopt.components.prepare_examples.cells import Kind, MissingError, UnusableError
from tfopt.components.prepare_examples.parameters import Column, Pack, Settings, Sparse, parse_columns, parse_names
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.survey.statistics import MOST_CLASSES, NO_VALUES, Rejects, Survey
from tfopt.data import tf_example
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

STRAY_WORDS = 0.1  # up to this share of words are errors in a column of numbers; with more it is a column of words
Features = dict[str, tf_example.Values]
T = TypeVar("T")


@dataclass(frozen=True)
class Schema:
    """The types of the columns and features, and the settings that `features` needs."""

    label: str
    columns: dict[str, str]  # type of each column: int64, float32 or string
    classes: tuple[str, ...]  # names of the classes of a label of words, by number; empty for another label
    pack: Pack | None
    sparse: tuple[Sparse, ...] = ()
    declared: Mapping[str, Column] = field(default_factory=dict)  # the columns that the settings declare, by name
    missing: str = "omit"
    # Names of features that differ from their columns' names
    new_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, str]:
        """The type of each stored feature."""
        columns = {self.pack.name: "float32", self.label: self.columns[self.label]} if self.pack else dict(self.columns)
        return self.renamed(columns | ({self.label: "int64"} if self.classes else {}))

    def renamed(self, features: Mapping[str, T]) -> dict[str, T]:
        """Return the features by their new names."""
        return {self.new_names.get(name, name): value for name, value in features.items()}

    def features(self, row: Row, source: Source) -> Features:
        """Return the values of a row by feature name.

        Raises:
            UnusableError: If a value does not have its column's type or is not finite, or the label is missing.
            MissingError: If a value is missing and such rows are left out.
        """
        content = json.loads(row.payload) if source.is_table else []
        if self.pack and source.has_text_cells and (packed := self._pack_integers(content, self.pack)):
            return packed
        features = self._from_cells(content, source) if source.is_table else self._from_example(row)
        label = features.get(self.label, [])
        if len(label) != 1:
            raise UnusableError(
                f"{self.label}: {len(label)} values, one label is expected" if len(label) else "no label"
            )
        if self.classes:
            name = label[0].decode(errors="replace")
            if name not in self.classes:
                raise UnusableError(f"{self.label}: {name[:50]!r} is none of the declared classes")
            features[self.label] = [self.classes.index(name)]
        return self._packed(features, self.pack) if self.pack else self.renamed(features)

    def usable(self, rows: Iterable[Row], source: Source, rejects: Rejects) -> tuple[list[Features], int]:
        """Return the features of the usable rows, and the number of rows left out; the others are added to rejects."""
        usable, dropped = [], 0
        for row in rows:
            try:
                if row.problem:
                    raise UnusableError(row.problem)
                usable.append(self.features(row, source))
            except UnusableError as error:
                rejects.add(row, str(error))
            except MissingError:
                dropped += 1
        return usable, dropped

    def _pack_integers(self, content: list[str], pack: Pack) -> Features | None:
        """Pack a row of integers, such as pixels, 10 times faster than other rows; return None for other rows."""
        position = list(self.columns).index(self.label)
        if cells.kinds_of(content).strip(bytes([Kind.INTEGER])) or self.columns[self.label] != "int64":
            return None
        numbers = list(map(int, content))
        label = numbers.pop(position)
        return {pack.name: np.array(numbers, np.float32), self.label: [label]}

    def _from_cells(self, content: list[Any], source: Source) -> Features:
        features: Features = {}
        for (name, dtype), cell in zip(self.columns.items(), content, strict=True):
            if source.has_text_cells:
                values = cells.parse_cell(name, dtype, cell, name in self.declared, name == self.label)
            else:
                values = cells.convert_cell(name, dtype, cell, name in self.declared)
            default = self.declared[name].default if name in self.declared else None
            if values is None and default is None and self.missing == "drop":
                raise MissingError(name)
            if values is None and default is None and self.missing == "default":
                default = cells.DEFAULTS[dtype]
            if values is None and default is not None and name != self.label:
                values = [default]
            if values:
                features[name] = values
        return features

    def _from_example(self, row: Row) -> Features:
        features, types = tf_example.parse(row.payload)
        for name, values in features.items():
            expected = self.columns[name]
            if types[name] != expected and (types[name], expected) != ("int64", "float32"):
                raise UnusableError(f"{name}: {types[name]} where the others are {expected}")
            if expected == "float32" and not np.isfinite(values).all():
                raise UnusableError(f"{name}: a value that is not finite")
        for sparse in self.sparse:
            _check_positions(sparse, features.get(sparse.positions, []), features.get(sparse.values, []))
        return features

    def _packed(self, features: Features, pack: Pack) -> Features:
        parts = [
            np.asarray(features[name], np.float32) for name in self.columns if name != self.label and name in features
        ]
        packed = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        if len(packed) != pack.size:
            missing = [name for name in self.columns if name not in features]
            raise UnusableError(
                f"{pack.name}: {len(packed)} values instead of {pack.size}"
                + (f", {missing[0]} is missing" if missing else "")
            )
        return {pack.name: packed, self.label: features[self.label]}


def _check_positions(sparse: Sparse, positions: tf_example.Values, values: tf_example.Values) -> None:
    if len(positions) != len(values):
        raise UnusableError(f"{sparse.name}: {len(positions)} positions and {len(values)} values")
    if len(positions) and not (min(positions) >= 0 and max(positions) < sparse.size):
        raise UnusableError(f"{sparse.name}: positions beyond 0 to {sparse.size - 1}")
    if len(set(positions)) < len(positions):
        raise UnusableError(f"{sparse.name}: a position that occurs twice")


def decide_schema(survey: Survey, source: Source, settings: Settings) -> Schema:
    """Decide the type of every column that is not declared, and whose type the files do not contain.

    Numbers have at most a tenth of words, integers no fractions.

    Raises:
        ComponentError: If the label is partly numbers and partly words or has too many different words,
            or words would have to be packed into a float feature.
    """
    if source.format == "images":
        types = dict(zip(source.columns, ("float32", "int64"), strict=True))
        return Schema(source.label, types, (), None, new_names=_new_names(settings, types, None))
    kinds = survey.kinds()
    names = source.columns if source.is_table else sorted(kinds)
    inferred = {name: _type(kinds.get(name, NO_VALUES), settings.max_rejected, name == source.label) for name in names}
    columns = inferred | source.types | source.declared
    columns.setdefault(source.label, "int64")
    _check_label(survey, source, settings)
    pack = None if source.image else settings.packed_feature
    text_columns = [name for name, dtype in columns.items() if dtype == "string" and name != source.label]
    if pack and text_columns:
        received = f"pack={pack}: column {text_columns[0]!r} holds words ({_first_text(survey, text_columns[0])})"
        expected = "columns of numbers besides the label"
        raise ComponentError(received, expected, "leave pack out, or remove those columns from the data")
    classes: tuple[str, ...] = ()
    if columns[source.label] == "string":
        words = {word.decode(errors="replace") for word in survey.words}
        classes = number_classes(words, settings.classes, source.label)
    elif settings.classes:
        received = f"classes={list(settings.classes)}: the label {source.label!r} is {columns[source.label]}"
        fix = f'leave classes out or, if the numbers are names, pass columns=["{source.label}:string"]'
        raise ComponentError(received, "a label of words, because a number is its own class", fix)
    for sparse in settings.sparse_features:
        _check_sparse(sparse, columns, source)
    declared, new_names = parse_columns(settings.columns), _new_names(settings, columns, pack)
    return Schema(source.label, columns, classes, pack, settings.sparse_features, declared, settings.missing, new_names)


def _new_names(settings: Settings, columns: Mapping[str, str], pack: Pack | None) -> dict[str, str]:
    """Return the new names of features; raise ComponentError if a feature does not exist or cannot be renamed."""
    parts = {part for sparse in settings.sparse_features for part in (sparse.name, sparse.positions, sparse.values)}
    new_names = parse_names(settings.rename)
    for name, new in new_names.items():
        received = f"rename={name}={new}"
        if pack:
            received = f"{received}, and pack={pack}"
            raise ComponentError(received, "one of them", f"leave rename out, and use pack={new}=…")
        if name not in columns:
            raise ComponentError(f"{received}: no {name!r}", f"features {', '.join(columns)}", nearest(name, columns))
        if name in {settings.label, *parts}:
            expected = "no label or part of a sparse feature"
            raise ComponentError(received, expected, "leave it out: no input has its name")
        if new in {*parts, *(columns.keys() - new_names.keys())}:
            raise ComponentError(f"{received}: there is such a feature", "a new name", f"rename {new!r} as well")
    return new_names


def number_classes(names: Collection[str], declared: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the class names by their number: the declared ones, or else those of the data, sorted.

    Raises:
        ComponentError: If a declared name occurs twice, or without a declaration two names of the data differ only in
            case or spaces, such as ``yes`` and ``Yes ``.
    """
    if declared:
        if len(set(declared)) < len(declared):
            raise ComponentError(f"classes={list(declared)}", "different names", "name each class once")
        return tuple(declared)
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(" ".join(name.split()).casefold(), []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    if alike:
        shown = "; ".join(" and ".join(map(repr, group)) for group in alike[:5])
        raise ComponentError(
            f"label {label!r}: {sum(map(len, alike))} of {len(names)} classes differ from another one only in "
            f"case or spaces: {shown}",
            "one spelling for each class",
            f"correct the data or, if they are different classes, name all with classes={sorted(names)[:20]}",
        )
    return tuple(sorted(names))


def _check_sparse(sparse: Sparse, columns: Mapping[str, str], source: Source) -> None:
    for name, accepted in ((sparse.positions, ("int64",)), (sparse.values, ("int64", "float32"))):
        if name not in columns:
            received = f"sparse={sparse.name}: no feature {name!r}"
            raise ComponentError(received, f"features {', '.join(columns)}", nearest(name, columns))
        if columns[name] not in accepted or name == source.label:
            raise ComponentError(
                f"sparse={sparse.name}: feature {name!r} is {'the label' if name == source.label else columns[name]}",
                " or ".join(accepted),
                "name the feature with positions first, then the one with values",
            )
    if sparse.name in columns:
        received = f"sparse={sparse.name}: there is such a feature"
        raise ComponentError(received, "a name that no feature has", "choose another")


def _type(counts: list[int], max_rejected: float, is_label: bool) -> str:
    values = sum(counts[Kind.INTEGER :])
    if counts[Kind.TEXT] > max(max_rejected, STRAY_WORDS) * values:
        return "string"
    fractions = counts[Kind.NUMBER]
    if is_label and counts[Kind.INTEGER] and fractions <= max_rejected * values:
        return "int64"  # a single wrong class index must not make it a regression
    return "float32" if fractions or not counts[Kind.INTEGER] else "int64"


def _check_label(survey: Survey, source: Source, settings: Settings) -> None:
    counts = survey.kinds().get(source.label, NO_VALUES)
    numbers, words = sum(counts[Kind.INTEGER : Kind.TEXT]), counts[Kind.TEXT]
    if source.label not in source.declared and min(numbers, words) > max(settings.max_rejected, STRAY_WORDS) * (
        numbers + words
    ):
        received = f"label {source.label!r}: {numbers} numbers and {words} words ({_first_text(survey, source.label)})"
        raise ComponentError(received, "all numbers or all words", "fix the label, or name another column")
    if words > numbers and len(survey.words) > MOST_CLASSES:
        received = f"label {source.label!r}: more than {MOST_CLASSES} different words"
        raise ComponentError(received, "a class or a number", "name the column that contains the class")


def _first_text(survey: Survey, name: str) -> str:
    if name not in survey.first_texts:
        return "its type is string"
    file, line, text = survey.first_texts[name]
    return f"first {text!r} in {file} line {line}"
