"""TFRecord reader: files of tf.Example, which are split again."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import IO, Any

from tfopt.components.prepare_examples.files import open_for_reading
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers import images
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.data import tf_example
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError

MAX_RECORD = 1 << 28  # bytes; a tf.Example of 2 GiB cannot be parsed, and several copies of a record are in memory


def inspect(source: Source, settings: Settings) -> Source:
    """Raise ComponentError if the first record is no tf.Example with the label, or there is none."""
    file, record = next(((file, record) for file in source.files for record in records(file)), (source.root, None))
    if record is None:
        raise ComponentError(f"{source.root}: no records", "TFRecord files with records", "give some with content")
    try:
        features, types = tf_example.parse(record)
    except ValueError as error:
        received = f"{file}: the first record is {error}"
        raise ComponentError(received, "TFRecords of tf.Example", "give a file of tf.Example") from error
    if settings.label not in features:
        received = f"{file}: no feature {settings.label!r}"
        raise ComponentError(received, "the name of a feature", nearest(settings.label, features))
    encoded = [name for name in features if types[name] == "string" and _has_image(features[name])]
    if encoded and settings.pack:
        return _decoded_source(source, settings, features, encoded)
    if pack := settings.packed_feature:
        packed = [name for name in features if name != settings.label and types[name] != "string"]
        pack.check(settings.label, sum(len(features[name]) for name in packed), file)
    return source


def _has_image(values: tf_example.Values) -> bool:
    return len(values) == 1 and images.size_of(lambda: values[0]) is not None


def _decoded_source(
    source: Source, settings: Settings, features: Mapping[str, tf_example.Values], encoded: Sequence[str]
) -> Source:
    """Return the source with an encoded image to decode; raise ComponentError if there are several, or no size."""
    content = features[encoded[0]][0]
    pack = images.check_size(settings.packed_feature, settings.label, lambda: content, source.root)
    others = features.keys() - set(encoded)
    if len(encoded) > 1 or pack.name in others:
        received = f"pack={pack}, and encoded images in {', '.join(encoded)} besides {', '.join(sorted(others))}"
        fix = "pack under another name" if pack.name in others else "write the others to files of their own"
        raise ComponentError(received, "one feature with encoded images, and a name that no other feature has", fix)
    files = {file: size * pack.size * 4 // len(content) for file, size in source.files.items()}  # as decoded
    names, shapes = (encoded[0], pack.name), {pack.name: pack.shape}
    return replace(source, files=files, encoded=names, image=pack.shape, shapes=shapes)


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the records, serialized with sorted features, numbered from 1, with decoded images; see `records`."""
    for number, record in enumerate(records(file), 1):
        try:
            features, types = tf_example.parse(record)
        except ValueError as error:
            yield Row(source.name(file), number, problem=str(error))
            continue
        if source.encoded:
            encoded, name = source.encoded
            try:
                pixels = images.decode(features.pop(encoded)[0], *source.image)
            except Exception as error:  # no such feature, or Pillow's decoders
                yield Row(source.name(file), number, problem=f"{encoded}: {images.reason(error)}")
                continue
            features[name], types[name] = pixels.ravel(), "float32"
        yield Row(source.name(file), number, tf_example.serialize(features, types))


def records(file: str) -> Iterator[bytes]:
    """Yield each record after checking its checksums; raise ComponentError if the file is damaged."""
    with open_for_reading(file) as stream:
        number = 1
        try:
            bounded = SimpleNamespace(read=functools.partial(_read_bounded, stream))
            while (record := _framing().read_record(bounded)) is not None:
                yield record
                number += 1
        except ValueError as error:
            received = f"{file}: record {number} is damaged ({str(error)[:100]})"
            raise ComponentError(received, "a complete TFRecord file", "copy or write it again") from error


def _read_bounded(stream: IO[bytes], size: int) -> bytes:
    """Read this many bytes; refuse more than `MAX_RECORD`: a small gzip file can declare and contain gigabytes."""
    if size > MAX_RECORD:
        raise ValueError(f"it declares {size} bytes, more than {MAX_RECORD}")
    return stream.read(size)


def write_record(stream: Any, record: bytes) -> None:
    """Append a record to the stream."""
    _framing().write_record(stream, record)


def _framing() -> Any:
    from apache_beam.io.tfrecordio import _TFRecordUtil  # its public transforms lose data on the Dask runner

    return _TFRecordUtil
