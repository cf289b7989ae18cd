"""Reading Examples as batches of named numpy arrays, exactly as a model's signature asks for them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import TensorSpec

Batch = dict[str, NDArray[Any]]


def read_batches(files: Sequence[str | Path], specs: Mapping[str, TensorSpec], *, batch_size: int) -> Iterator[Batch]:
    """Yield batches of the features named in ``specs``, in the files' order; the last of the split may be smaller.

    Args:
        files: TFRecord files of tf.Example, plain or ``.gz``.
        specs: What to read; a shape's first size is the batch. A feature of integers may feed a float input.
        batch_size: How many records a batch.

    Raises:
        ComponentError: When a feature is absent (the nearest names are offered), of another type or length, or a file
            is damaged.
    """
    records = iter(read_records(files))
    first = next(records, None)
    if first is None:
        raise ComponentError(
            f"{files[0] if files else 'no files'}: no records", "at least one tf.Example", "prepare the examples again"
        )
    parse = _parser(first, specs, str(files[0]))
    batch = [first, *islice(records, batch_size - 1)]
    while batch:
        yield parse(batch)
        batch = list(islice(records, batch_size))


def read_records(files: Iterable[str | Path]) -> Iterator[bytes]:
    """Yield the serialized records of TFRecord files.

    Raises:
        ComponentError: When a file is truncated or is no TFRecord file.
    """
    import tensorflow as tf

    for file in files:
        kind = "GZIP" if str(file).endswith(".gz") else ""
        try:
            yield from tf.data.TFRecordDataset(
                str(file), compression_type=kind, buffer_size=1 << 20
            ).as_numpy_iterator()
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError) as error:
            raise ComponentError(
                f"{file}: damaged ({error.message.splitlines()[0]})", "a whole TFRecord file", "write it again"
            ) from error


def feature_specs(record: bytes) -> dict[str, TensorSpec]:
    """Return the name, stored type (int64, float32, string) and length of every feature of one record."""
    import tensorflow as tf

    kinds = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}
    features = tf.train.Example.FromString(record).features.feature
    found = {}
    for name, feature in sorted(features.items()):
        kind = feature.WhichOneof("kind")
        if kind:
            found[name] = TensorSpec(kinds[kind], (None, len(getattr(feature, kind).value)))
    return found


def check_features(
    stored: Mapping[str, TensorSpec], specs: Mapping[str, TensorSpec], where: str
) -> dict[str, TensorSpec]:
    """Return how the features named in ``specs`` are stored.

    Raises:
        ComponentError: When one is absent (the nearest names are offered), or of another type or length.
    """
    found = {}
    for name, spec in specs.items():
        if name not in stored:
            raise ComponentError(
                f"{where}: no feature {name!r}", f"features {', '.join(stored)}", nearest(name, stored)
            )
        have = found[name] = stored[name]
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
    return found


def as_input(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Give stored rows of values the dtype and the shape that a model asks for."""
    typed = array if spec.dtype == "string" else array.astype(spec.dtype, copy=False)
    return typed.reshape([len(array), *_free(spec.shape[1:])])


def _parser(record: bytes, specs: Mapping[str, TensorSpec], where: str) -> Any:
    """Return a function from serialized records to arrays, after checking one record against the specs."""
    import tensorflow as tf

    stored = check_features(feature_specs(record), specs, where)
    columns = {name: tf.io.FixedLenFeature([have.shape[1]], tf.as_dtype(have.dtype)) for name, have in stored.items()}

    def parse(records: list[bytes]) -> Batch:
        try:
            parsed = tf.io.parse_example(tf.constant(records), columns)
        except tf.errors.InvalidArgumentError as error:
            raise ComponentError(
                f"{where}: {error.message.splitlines()[0]}",
                "every record alike",
                "prepare the examples again; records differ in length or type",
            ) from error
        return {name: as_input(parsed[name].numpy(), specs[name]) for name in columns}

    return parse


def _storage(dtype: str) -> str:
    if dtype == "string":
        return "string"
    return "float32" if "float" in dtype else "int64"


def _free(sizes: tuple[int | None, ...]) -> list[int]:
    """At most one unknown size, which the reshape works out; further ones are taken as 1."""
    unknown = [index for index, size in enumerate(sizes) if size is None]
    return [-1 if unknown and index == unknown[0] else size or 1 for index, size in enumerate(sizes)]
