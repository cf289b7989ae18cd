"""Reading Examples as batches of named numpy arrays, exactly as a model's signature asks for them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError, first_line, nearest
from tfopt.runtimes import TensorSpec
from tfopt.tfrecords import check_whole, dataset, framed, read_records

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
Columns = dict[str, TensorSpec]  # how each feature is stored: (None, length)
KINDS = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}


def read_batches(files: Sequence[str | Path], specs: Mapping[str, TensorSpec], *, batch_size: int) -> Iterator[Batch]:
    """Yield batches of the features named in ``specs``, in the files' order; only the last may be smaller.

    Records are parsed inside ``tf.data`` and never pass through Python one by one. The arrays may be read-only.

    Args:
        files: TFRecord files of tf.Example, gzipped where the name ends in ``.gz``; local paths or addresses.
        specs: What to read; a shape's first size is the batch. A feature of integers may feed a float input.
        batch_size: How many records a batch.

    Raises:
        ComponentError: When a feature is absent (the nearest names are offered), missing from some record, of another
            type or length, or a file is damaged; with the file and the record's number.
    """
    import tensorflow as tf

    columns = check_features(feature_specs(_first(files)), specs, _where(files))
    features = {name: tf.io.FixedLenFeature([have.shape[1]], have.dtype) for name, have in columns.items()}

    def parse(records: Any) -> Any:
        return tf.io.parse_example(records, features), framed(records)

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


def parse_records(records: Sequence[bytes], specs: Mapping[str, TensorSpec], *, where: str = "records") -> Batch:
    """Return one batch from serialized records, checked as in `read_batches`.

    Args:
        records: At least one serialized tf.Example.
        specs: What to read.
        where: What to call the records in an error.

    Raises:
        ComponentError: As `read_batches`.
    """
    import tensorflow as tf

    columns = check_features(feature_specs(records[0]), specs, where)
    features = {name: tf.io.FixedLenFeature([have.shape[1]], have.dtype) for name, have in columns.items()}
    try:
        parsed = tf.io.parse_example(tf.constant(list(records)), features)
    except tf.errors.OpError:
        for index, record in enumerate(records):
            _check_record(record, columns, f"{where}, record {index}")
        raise
    return {name: as_input(parsed[name].numpy(), spec) for name, spec in specs.items()}


def feature_specs(record: bytes) -> dict[str, TensorSpec]:
    """Return the name, stored type (int64, float32, string) and length of every feature of one record.

    Raises:
        ComponentError: When it is no tf.Example.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise ComponentError(
            f"a record of {len(record)} bytes that is no tf.Example",
            "serialized tf.Example records",
            "prepare the examples with: tfopt prepare_examples",
        ) from error
    found = {}
    for name, feature in sorted(features.items()):
        kind = feature.WhichOneof("kind")
        if kind and getattr(feature, kind).value:  # a feature without values is a missing one
            found[name] = TensorSpec(KINDS[kind], (None, len(getattr(feature, kind).value)))
    return found


def check_features(stored: Mapping[str, TensorSpec], specs: Mapping[str, TensorSpec], where: str) -> Columns:
    """Return how the features named in ``specs`` are stored.

    Raises:
        ComponentError: When one is absent (the nearest names are offered), or of another type or length.
    """
    for name, spec in specs.items():
        if name not in stored:
            raise ComponentError(
                f"{where}: no feature {name!r}", f"features {', '.join(stored)}", nearest(name, stored)
            )
        have = stored[name]
        if have.dtype != _storage(spec.dtype) and not (have.dtype == "int64" and _storage(spec.dtype) == "float32"):
            raise ComponentError(
                f"{where}: feature {name!r} is {have.dtype}", f"{spec}", "prepare the examples with that type"
            )
        length = int(np.prod([size for size in spec.shape[1:] if size is not None], dtype=int))
        dynamic = None in spec.shape[1:]
        if (have.shape[1] or 0) % length if dynamic else have.shape[1] != length:
            raise ComponentError(
                f"{where}: feature {name!r} has {have.shape[1]} values",
                f"{spec}, {length} values",
                "prepare the examples with that shape",
            )
    return {name: stored[name] for name in specs}


def as_input(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Give stored rows of values the dtype and the shape that a model asks for.

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
    return typed.reshape([len(array), *_free(spec.shape[1:])])


def _first(files: Sequence[str | Path]) -> bytes:
    first = next(read_records(files), None)
    if first is None:
        raise ComponentError(f"{_where(files)}: no records", "at least one tf.Example", "prepare the examples again")
    return first


def _refuse_first_bad(files: Sequence[str | Path], columns: Columns) -> None:
    """Say which record of which file is to blame; only reached when reading failed."""
    for file in files:
        for index, record in enumerate(read_records([file])):
            _check_record(record, columns, f"{file}, record {index}")


def _check_record(record: bytes, columns: Columns, where: str) -> None:
    stored = feature_specs(record)
    for name, want in columns.items():
        have = stored.get(name)
        if have is None:
            raise ComponentError(
                f"{where}: feature {name!r} is missing",
                f"{want} in every record",
                "fill in missing values, or leave such records out, when preparing the examples",
            )
        if have != want:
            raise ComponentError(
                f"{where}: feature {name!r} is {have}",
                f"{want}, as in the first record",
                "prepare the examples with one type and length; pad what differs in length",
            )


def _storage(dtype: str) -> str:
    if dtype == "string":
        return "string"
    return "float32" if "float" in dtype else "int64"


def _free(sizes: tuple[int | None, ...]) -> list[int]:
    """At most one unknown size, which the reshape works out; further ones are taken as 1."""
    unknown = [index for index, size in enumerate(sizes) if size is None]
    return [-1 if unknown and index == unknown[0] else size or 1 for index, size in enumerate(sizes)]


def _where(files: Sequence[str | Path]) -> str:
    return str(files[0]) if files else "no files"
