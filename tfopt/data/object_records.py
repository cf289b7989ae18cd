"""Write Python objects as Examples: arrays, data frames and ``tf.data`` datasets, with labels or without."""

import contextlib
import hashlib
import json
import re
import shutil
import sys
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.data.batches import serialize_records
from tfopt.data.feature_schema import MANIFEST
from tfopt.data.object_columns import Columns, Naming, by_name, is_frame, named_columns
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.reports.report_schema import dump

BLOCK = 1024  # records that are converted together
MOST_BYTES = 8 << 30  # a dataset that repeats without end would fill the disk
MOST_SEEDS = 50  # tried until no split of a few records is empty
_tokens: "weakref.WeakKeyDictionary[object, str]" = weakref.WeakKeyDictionary()


Records = tuple[Callable[[], Iterator[Columns]], bytes]  # in batches; with a key that identifies their content


class _FractionError(Exception):
    """A label is not a whole number, though the earlier ones were."""


@dataclass
class _Statistics:
    """Statistics of the features that are written."""

    shapes: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, columns: Columns) -> None:
        for name, array in columns.items():
            self.shapes.setdefault(name, set()).add(array.shape[1:] or (1,))
            self.types[name] = "string" if array.dtype == object else array.dtype.name
            if array.dtype != object and array.size:
                low, high = self.ranges.get(name, (np.inf, -np.inf))
                self.ranges[name] = min(low, float(array.min())), max(high, float(array.max()))

    def features(self) -> dict[str, FeatureStatistics]:
        features = {}
        for name, shapes in self.shapes.items():
            shape: list[int | None] = [*next(iter(shapes))] if len(shapes) == 1 else [None]
            low, high = self.ranges.get(name, (None, None))
            features[name] = FeatureStatistics(self.types[name], shape, missing=0, min=low, max=high)
        return features


class ObjectRecords:
    """The records of an object, not written yet."""

    def __init__(self, value: object, naming: Naming, shares: Mapping[str, int]) -> None:
        """Take the arrays of an object, which a mapping of splits has for each of them.

        The object is one of `ACCEPTED`, but no path. ``naming`` has names for what has none, ``shares`` the names and
        shares of the splits of an object that is not divided.

        Raises:
            ComponentError: If it is something else, or the arrays do not belong together.
        """
        self._label, self._shares = naming.label, {} if _has_splits(value) else dict(shares)
        parts = value if isinstance(value, Mapping) and _has_splits(value) else {"": value}
        self._sources = {str(name): _source(part, naming) for name, part in parts.items()}
        for name in self._sources:
            if name and not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
                raise ComponentError(f"split {name!r}", "letters, digits, _ . -", "rename it, such as train or eval")
        facts = [[name, key.hex()] for name, (_, key) in self._sources.items()]
        # It identifies content, names and splits; that of a dataset identifies the object.
        self.digest = hashlib.sha256(json.dumps([facts, self._shares, self._label]).encode()).hexdigest()

    def write(self, folder: Path) -> dict[str, int]:
        """Write the records and ``examples.json``, and return the number of records of each split.

        A record of an object that is not divided goes to the split that a hash of its content draws, so that equal
        records are in the same one. A label of floats that are whole numbers becomes one of integers: a class.

        Raises:
            ComponentError: If a value cannot be stored, or a split would be empty.
        """
        counts: dict[str, int] = {}
        for has_classes in (True, False):
            with contextlib.suppress(_FractionError):
                for seed in range(MOST_SEEDS):
                    shutil.rmtree(folder, ignore_errors=True)
                    counts = self._write(folder, seed, has_classes)
                    if all(counts.values()) or not self._shares:
                        break
                break
        if empty := [name for name, count in counts.items() if not count]:
            received = f"{sum(counts.values())} records, none of them for split {' or '.join(empty)}"
            fix = 'pass more records, or a mapping of splits: {"train": (x, y), "eval": (x, y)}'
            raise ComponentError(received, "records that differ, for each split", fix)
        return counts

    def _write(self, folder: Path, seed: int, has_classes: bool) -> dict[str, int]:
        """Write all records with one seed."""
        import tensorflow as tf

        names = list(self._shares or self._sources)
        slots = [name for name, share in self._shares.items() for _ in range(share)]
        counts, size, statistics = dict.fromkeys(names, 0), 0, _Statistics()
        with contextlib.ExitStack() as stack:
            writers = {}
            for name in names:
                (folder / f"Split-{name}").mkdir(parents=True)
                file = folder / f"Split-{name}" / "data_tfrecord-00000-of-00001"
                writers[name] = stack.enter_context(tf.io.TFRecordWriter(str(file)))
            for own, columns in self._blocks(has_classes, statistics):
                for record in serialize_records(columns):
                    position = int.from_bytes(hashlib.sha256(b"%d\0" % seed + record).digest()[:8], "big")
                    name = own or slots[position * len(slots) >> 64]
                    writers[name].write(record)
                    counts[name] += 1
                    size += len(record)
                if size > MOST_BYTES:
                    received = f"{sum(counts.values()):,} records of more than {MOST_BYTES >> 30} GiB, and no end"
                    fix = "leave out repeat(), end it with take(N), or write files and use prepare_examples"
                    raise ComponentError(received, "a dataset that ends", fix)
        manifest = ExamplesManifest(
            splits=counts,
            features=statistics.features(),
            label=self._label if self._label in statistics.types else None,
        )
        (folder / MANIFEST).write_text(json.dumps(dump(manifest), indent=1))
        return counts

    def _blocks(self, has_classes: bool, statistics: _Statistics) -> Iterator[tuple[str, Columns]]:
        """Yield the split, or nothing for one to be drawn, and rows of values of a few records by name."""
        for own, (batches, _) in self._sources.items():
            for columns in batches():
                if has_classes and self._label in columns:
                    columns = columns | {self._label: _whole(columns[self._label])}
                statistics.add(columns)
                for start in range(0, len(next(iter(columns.values()))), BLOCK):
                    block = {name: array[start : start + BLOCK] for name, array in columns.items()}
                    yield own, {name: array.reshape(len(array), -1) for name, array in block.items()}


def object_token(value: object) -> str:
    """Return a text that no other object of this process has, for objects whose content cannot be compared."""
    return _tokens.setdefault(value, uuid.uuid4().hex)


def is_dataset(value: object) -> bool:
    """Test for a ``tf.data.Dataset``, without importing TensorFlow."""
    return "tensorflow" in sys.modules and isinstance(value, sys.modules["tensorflow"].data.Dataset)


def _whole(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels of whole numbers as integers; raise _FractionError for fractions."""
    if labels.dtype != np.float32:
        return labels
    if not np.array_equal(labels, np.trunc(labels)) or np.abs(labels).max(initial=0) >= 1 << 24:
        raise _FractionError
    return labels.astype(np.int64)


def _has_splits(value: object) -> bool:
    """Test for a mapping of splits: its values are data themselves, not arrays."""
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(part, tuple | Mapping) or is_dataset(part) or is_frame(part) for part in value.values())


def _source(value: Any, naming: Naming) -> Records:
    if is_dataset(value):
        return _dataset_source(value, naming)
    columns = named_columns(value, naming)
    _check_label(columns, naming, type(value).__name__)
    total = hashlib.sha256()
    for name, array in columns.items():
        total.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        if array.dtype == object:
            for text in array.ravel():
                total.update(b"%d\0" % len(text) + text)
        else:
            total.update(np.ascontiguousarray(array).data)
    return lambda: iter([columns]), total.digest()


def _dataset_source(dataset: Any, naming: Naming) -> Records:
    import tensorflow as tf

    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        received = "a tf.data.Dataset without end"
        raise ComponentError(received, "a dataset that ends", "leave out repeat(), or end it with take(N)")
    specs = by_name(dataset.element_spec, naming)
    ragged = [name for name, spec in specs.items() if not isinstance(spec, tf.TensorSpec)]
    if ragged:
        received = f"{ragged[0]}: {type(specs[ragged[0]]).__name__} in a tf.data.Dataset"
        fix = "convert it with dataset.map, for example by to_tensor() or tf.sparse.to_dense"
        raise ComponentError(received, "dense tensors", fix)
    _check_label(specs, naming, "tf.data.Dataset")
    batched = dataset if _is_batched(specs, naming) else dataset.batch(BLOCK)

    def batches() -> Iterator[Columns]:
        try:
            for element in batched.as_numpy_iterator():
                yield named_columns(element, naming)
        except tf.errors.OpError as error:
            received = f"a tf.data.Dataset that fails: {first_line(error)}"
            fix = "iterate over it yourself to find the element; pad values of varying length"
            raise ComponentError(received, "elements of one shape", fix) from error

    return batches, f"{object_token(dataset)} {sorted(specs)}".encode()


def _is_batched(specs: Mapping[str, Any], naming: Naming) -> bool:
    """Test whether the elements of a dataset are batches, from the shapes of their tensors."""
    shapes = {name: spec.shape for name, spec in specs.items()}
    if any(shape.rank == 0 for shape in shapes.values()):
        return False
    sizes = {shape[0] for shape in shapes.values() if shape.rank}
    match_inputs = [
        shapes[name].rank == len(spec.shape)
        for name, spec in (naming.inputs or {}).items()
        if name in shapes and shapes[name].rank and spec.ranked and len(spec.shape) > 1
    ]
    if len(sizes) == 1 and sizes != {None} and match_inputs:  # equal sizes may be those of batches, or of records
        return all(match_inputs)
    return len(sizes) == 1


def _check_label(columns: Mapping[str, Any], naming: Naming, kind: str) -> None:
    if naming.needs_label and naming.label not in columns:
        fix = f"pass (x, y), or the column of the label as label=NAME; {nearest(naming.label, columns)}"
        if several := [name for name in naming.outputs if name in columns]:
            fix = f"pass output=NAME for the output to evaluate: {', '.join(several)}"
        received = f"{kind} of {', '.join(columns)}: no label {naming.label!r}"
        raise ComponentError(received, "a label for each record", fix)
