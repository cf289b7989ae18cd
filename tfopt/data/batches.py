"""Reading Examples as batches of named numpy arrays, exactly as a model's signature asks for them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import (
    Columns,
    check_features,
    check_record,
    dense,
    feature_specs,
    parsers,
    stored_features,
)
from tfopt.data.tfrecords import check_whole, dataset, framed, read_records
from tfopt.errors import ComponentError, first_line

__all__ = [
    "Batch",
    "as_input",
    "check_features",
    "feature_specs",
    "parse_records",
    "read_batches",
    "read_records",
    "sample_records",
]

Batch = dict[str, NDArray[Any]]


def read_batches(files: Sequence[str | Path], specs: Mapping[str, TensorSpec], *, batch_size: int) -> Iterator[Batch]:
    """Yield batches of the features named in ``specs``, in the files' order; only the last may be smaller.

    Records are parsed inside ``tf.data`` and never pass through Python one by one. The arrays may be read-only. Sparse
    features are filled up, and those of varying length as far as the longest of the batch.

    Args:
        files: TFRecord files of tf.Example, gzipped where the name ends in ``.gz``; local paths or addresses.
        specs: What to read; a shape's first size is the batch. A feature of integers may feed a float input.
        batch_size: How many records a batch.

    Raises:
        ComponentError: When a feature is absent (the nearest names are offered), missing from some record, of another
            type or length, or a file is damaged; with the file and the record's number.
    """
    import tensorflow as tf

    columns = check_features(stored_features(files), specs, _where(files))
    features = parsers(columns)

    def parse(records: Any) -> Any:
        parsed = tf.io.parse_example(records, features)
        return {name: dense(values) for name, values in parsed.items()}, framed(records)

    total = 0
    try:
        for parsed, size in dataset(files).batch(batch_size).map(parse).prefetch(1).as_numpy_iterator():
            total += int(size)
            yield {name: as_input(parsed[name], spec) for name, spec in specs.items()}
    except tf.errors.OpError as error:
        _refuse_first_bad(files, columns)
        raise ComponentError(
            f"{_where(files)}: {first_line(error)}",
            "TFRecord files of tf.Example, all alike",
            "prepare the examples again",
        ) from error
    check_whole(files, total)


def sample_records(files: Sequence[str | Path], *, count: int, seed: int) -> list[bytes]:
    """Draw records evenly from all of the files (a reservoir): the same for the same seed, all if they are fewer."""
    draw = random.Random(seed)
    kept: list[bytes] = []
    for index, record in enumerate(read_records(files)):
        slot = index if index < count else draw.randrange(index + 1)
        if slot < count:
            kept[slot : slot + 1] = [record]
    return kept


def parse_records(
    records: Sequence[bytes],
    specs: Mapping[str, TensorSpec],
    *,
    where: str = "records",
    stored: Mapping[str, TensorSpec] | None = None,
) -> Batch:
    """Return one batch from serialized records, checked as in `read_batches`.

    Args:
        records: At least one serialized tf.Example.
        specs: What to read.
        where: What to call the records in an error.
        stored: How their features are stored; as the first one shows it when None.

    Raises:
        ComponentError: As `read_batches`.
    """
    import tensorflow as tf

    columns = check_features(stored or feature_specs(records[0]), specs, where)
    try:
        parsed = tf.io.parse_example(tf.constant(list(records)), parsers(columns))
    except tf.errors.OpError:
        for index, record in enumerate(records):
            check_record(record, columns, f"{where}, record {index}")
        raise
    return {name: as_input(dense(parsed[name]).numpy(), spec) for name, spec in specs.items()}


def as_input(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Give stored rows of values the dtype and the shape that a model asks for: the first one where it takes a scalar.

    Raises:
        ComponentError: When an integer does not fit into the dtype.
    """
    typed = array if spec.dtype == "string" else array.astype(spec.dtype, copy=False)
    if array.dtype.kind == "i" and typed.dtype.kind in "iub" and not np.array_equal(typed, array):
        raise ComponentError(
            f"a feature with values from {array.min()} to {array.max()}",
            f"values of {spec.dtype}",
            "prepare the examples with values in that range",
        )
    return typed.reshape([len(array), *_free(spec.shape[1:])]) if spec.shape else typed[0].reshape(())


def _refuse_first_bad(files: Sequence[str | Path], columns: Columns) -> None:
    """Say which record of which file is to blame; only reached when reading failed."""
    for file in files:
        for index, record in enumerate(read_records([file])):
            check_record(record, columns, f"{file}, record {index}")


def _free(sizes: tuple[int | None, ...]) -> list[int]:
    """At most one unknown size, which the reshape works out; further ones are taken as 1."""
    unknown = [index for index, size in enumerate(sizes) if size is None]
    return [-1 if unknown and index == unknown[0] else size or 1 for index, size in enumerate(sizes)]


def _where(files: Sequence[str | Path]) -> str:
    return str(files[0]) if files else "no files"
