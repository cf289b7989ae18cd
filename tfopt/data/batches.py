"""Read Examples as batches of named numpy arrays with the dtypes and shapes of a signature."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import ParsedFeature, RecordSpec, TensorSpec
from tfopt.data import feature_schema, tf_example
from tfopt.data.tfrecords import read_blocks, read_records
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError, ExamplesError
from tfopt.value_types import JsonObject

Batch = dict[str, NDArray[Any]]
RECORDS = ""  # the key of the serialized records among the columns of a batch, for models that parse them


def read_batches(files: Sequence[str | Path], specs: Mapping[str, TensorSpec], *, batch_size: int) -> Iterator[Batch]:
    """Yield batches of the features named in ``specs``, in the files' order; only the last may be smaller.

    The files are TFRecords of tf.Example, gzipped if the name ends in ``.gz``; local paths or addresses. The arrays may
    be read-only. Sparse features become dense, and features of varying length are padded to the longest of the batch.
    An integer feature may feed a float input. A single input may have another name than its feature (see
    `match_features`). A `RecordSpec` gets the serialized records themselves.

    Raises:
        ExamplesError: If a feature does not exist, is missing in a record or has another type or length, or a file
            is damaged. The error names the file and the index of the record.
    """
    import tensorflow as tf

    where, stored = str(files[0]) if files else "no files", feature_schema.stored_features(files)
    specs = feature_schema.match_features(specs, stored, feature_schema.label_of(files))
    columns = feature_schema.check_features(stored, specs, where)
    features = feature_schema.parsing_specs(columns)
    try:
        for block in read_blocks(files, batch_size):
            yield _parse(block, features, specs)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        for file in files:
            for index, record in enumerate(read_records([file])):
                feature_schema.check_record(record, columns, f"{file}, record {index}")
        received = f"{where}: {first_line(error)}"
        expected = "TFRecord files of tf.Example with the same features"
        raise ExamplesError(received, expected, "prepare the examples again with: tfopt prepare_examples") from error


def sample_records(files: Sequence[str | Path], *, count: int, seed: int) -> list[bytes]:
    """Draw a random sample of the records of all files (reservoir sampling), or return all if there are fewer."""
    draw = random.Random(seed)
    reservoir: list[bytes] = []
    for index, record in enumerate(read_records(files)):
        slot = index if index < count else draw.randrange(index + 1)
        if slot < count:
            reservoir[slot : slot + 1] = [record]
    return reservoir


def parse_records(
    records: Sequence[bytes],
    specs: Mapping[str, TensorSpec],
    *,
    where: str = "records",
    files: Sequence[str | Path] = (),
) -> Batch:
    """Return one batch from one serialized tf.Example or more of these files, checked as in `read_batches`.

    Without files, all features must have the dtypes and lengths of the first record. Errors begin with ``where``.
    """
    import tensorflow as tf

    stored = feature_schema.stored_features(files) if files else feature_schema.feature_specs(records[0])
    specs = feature_schema.match_features(specs, stored, feature_schema.label_of(files))
    columns = feature_schema.check_features(stored, specs, where)
    try:
        return _parse(records, feature_schema.parsing_specs(columns), specs)
    except (tf.errors.OpError, UnicodeDecodeError) as error:  # TensorFlow quotes a damaged record
        for index, record in enumerate(records):
            feature_schema.check_record(record, columns, f"{where}, record {index}")
        raise ExamplesError(f"{where}: {first_line(error)}", "serialized tf.Example", "prepare them again") from error


def parse_features(records: NDArray[Any], features: Mapping[str, ParsedFeature]) -> Batch:
    """Parse dense features from serialized records, ``[records]``, as a model does, with its default values."""
    import tensorflow as tf

    parsed = tf.io.parse_example(tf.constant(records), {name: spec.parser() for name, spec in features.items()})
    return {name: values.numpy() for name, values in parsed.items()}


def serialize_records(columns: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Return a serialized tf.Example for each row of the columns: floats, text, or else integers."""
    types = {
        name: "float32" if np.issubdtype(values.dtype, np.floating) else "string" if values.dtype == object else "int64"
        for name, values in columns.items()
    }
    rows = zip(*columns.values(), strict=True)
    return [
        tf_example.serialize({name: values.ravel() for name, values in zip(columns, row, strict=True)}, types)
        for row in rows
    ]


def to_inputs(columns: Mapping[str, NDArray[Any]], specs: Mapping[str, TensorSpec]) -> Batch:
    """Convert parsed features, ``[records, values]``, to a model's inputs; a `RecordSpec` gets the column `RECORDS`."""
    return {name: to_input(columns[column_name(name, spec)], spec) for name, spec in specs.items()}


def column_name(name: str, spec: TensorSpec) -> str:
    """Return the key of the column that feeds an input."""
    return RECORDS if isinstance(spec, RecordSpec) else spec.feature or name


def to_input(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Convert stored rows of values to the dtype and shape of an input; a scalar input gets the first row.

    Raises:
        ComponentError: If an integer does not fit into the dtype.
    """
    typed = array if spec.dtype == "string" else array.astype(spec.dtype, copy=False)
    if array.dtype.kind == "i" and typed.dtype.kind in "iub" and not np.array_equal(typed, array):
        received = f"a feature with values from {array.min()} to {array.max()}"
        raise ComponentError(received, f"values of {spec.dtype}", "prepare the examples with values in that range")
    return typed.reshape([len(array), *_reshape_sizes(spec.shape[1:])]) if spec.shape else typed[0].reshape(())


def resize_batch(batch: Batch, records: int) -> Batch:
    """Return so many records of a batch, repeated from the first one if there are fewer; scalars as they are."""
    return {
        name: np.resize(array, (records, *array.shape[1:])) if array.ndim else array for name, array in batch.items()
    }


def is_one_hot(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each record whether exactly one of its values, one for each class, is 1 and the others are 0.

    >>> is_one_hot(np.array([[0, 1], [1, 1], [0, 0], [0.5, 0.5]])).tolist()
    [True, False, False, False]
    """
    return np.asarray(np.isin(labels, (0, 1)).all(1) & (np.equal(labels, 1).sum(1) == 1))


def _parse(records: Sequence[bytes], features: JsonObject, specs: Mapping[str, TensorSpec]) -> Batch:
    import tensorflow as tf

    parsed = tf.io.parse_example(list(records), features) if features else {}
    arrays = {name: feature_schema.densify(values).numpy() for name, values in parsed.items()}
    return to_inputs({RECORDS: np.array(records, object), **arrays}, specs)


def _reshape_sizes(sizes: tuple[int | None, ...]) -> list[int]:
    """Replace the first unknown size by -1, for reshape, and further unknown sizes by 1."""
    unknown = [index for index, size in enumerate(sizes) if size is None]
    return [-1 if unknown and index == unknown[0] else size or 1 for index, size in enumerate(sizes)]
