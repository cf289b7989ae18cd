"""TFRecord files of tf.Example, split anew."""

from collections.abc import Iterator
from typing import Any

from tfopt.components.prepare_examples import tf_example
from tfopt.components.prepare_examples.files import reading
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.request import Request
from tfopt.errors import ComponentError, nearest


def inspect(root: str, files: dict[str, int], request: Request) -> Source:
    """Find the features of the first record.

    Raises:
        ComponentError: When there is none, it is no tf.Example, or the label is not among its features.
    """
    file, record = next(((file, record) for file in files for record in records(file)), (root, None))
    if record is None:
        raise ComponentError(f"{root}: no records", "TFRecord files with records", "give some with content")
    try:
        features, types = tf_example.parse(record)
    except ValueError as error:
        raise ComponentError(
            f"{file}: the first record is {error}", "TFRecords of tf.Example", "give a file of tf.Example"
        ) from error
    if request.label not in features:
        raise ComponentError(
            f"{file}: no feature {request.label!r}", "the name of a feature", nearest(request.label, features)
        )
    if request.pack:
        size = sum(
            len(values) for name, values in features.items() if name != request.label and types[name] != "string"
        )
        request.pack.check(request.label, size, file)
    return Source("tfrecord", root, files, request.label)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the records in one spelling (features sorted), numbered from 1.

    Raises:
        ComponentError: When the file is damaged.
    """
    for number, record in enumerate(records(file), 1):
        try:
            yield Row(source.name(file), number, tf_example.serialize(*tf_example.parse(record)))
        except ValueError as error:
            yield Row(source.name(file), number, problem=str(error))


def records(file: str) -> Iterator[bytes]:
    """Yield the content of every record, its checksums checked.

    Raises:
        ComponentError: When the file is cut off or is no TFRecord file.
    """
    with reading(file) as stream:
        number = 1
        try:
            while (record := _framing().read_record(stream)) is not None:
                yield record
                number += 1
        except ValueError as error:
            raise ComponentError(
                f"{file}: record {number} is damaged ({str(error)[:100]})",
                "a whole TFRecord file",
                "copy or write it again",
            ) from error


def write(stream: Any, record: bytes) -> None:
    """Append a record."""
    _framing().write_record(stream, record)


def _framing() -> Any:
    from apache_beam.io.tfrecordio import _TFRecordUtil  # its public transforms lose data on the Dask runner

    return _TFRecordUtil
