"""Read TFRecord files, plain or gzipped, and detect truncated files; write the records of a split."""

import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tfopt.error_messages import first_line
from tfopt.errors import ExamplesError

FRAME = 16  # bytes that a TFRecord file adds to each record: length and two checksums
LARGEST = 1 << 31  # bytes of a record: the limit of protobuf
SMALLEST_GZIP = 18  # bytes of header and trailer


def read_records(files: Iterable[str | Path]) -> Iterator[bytes]:
    """Yield serialized records; raise ExamplesError if a file does not exist, is truncated or is no TFRecord file."""
    import tensorflow as tf
    from tensorflow.python.lib.io import _pywrap_record_io  # without the start of a tf.data pipeline

    for file in files:
        size = 0
        try:
            for record in _pywrap_record_io.RecordIterator(str(file), "GZIP" if _is_gzip(file) else ""):
                yield record
                size += FRAME + len(record)
        except tf.errors.OpError as error:
            raise damage_error(file, error) from error
        check_whole(file, size)


def peek_records(files: Iterable[str | Path], count: int) -> Iterator[bytes]:
    """Yield the first records without TensorFlow, which takes seconds to import; checksums are not compared."""
    for file in files:
        try:
            with gzip.open(file) if _is_gzip(file) else Path(file).open("rb") as stream:
                while count and (header := stream.read(FRAME - 4)):
                    size = int.from_bytes(header[:8], "little")
                    record = stream.read(min(size, LARGEST) + 4)
                    if len(record) < size + 4:
                        raise EOFError("a truncated record, or no TFRecord file")
                    yield record[:size]
                    count -= 1
        except (EOFError, OSError, zlib.error) as error:
            raise damage_error(file, error) from error


def read_blocks(files: Iterable[str | Path], size: int) -> Iterator[list[bytes]]:
    """Yield the records of `read_records` in lists of ``size``; only the last may be shorter."""
    records = read_records(files)
    while block := list(itertools.islice(records, size)):
        yield block


def write_split(folder: Path, split: str, records: Iterable[bytes]) -> None:
    """Write the serialized records of a split of examples as one file."""
    import tensorflow as tf

    file = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001"
    file.parent.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)


def file_dataset(file: Any) -> Any:
    """Return the dataset of one file; ``tf.data`` calls this function with a file name tensor.

    There is nothing to tune, and an iterator that ends may wait for the thread of tf.data's autotuner. It sleeps 10 ms,
    20 ms, 40 ms and so on (`ModelDataset` in TensorFlow's core) and is sometimes not woken: reading then takes up to
    twice as long (observed with TensorFlow 2.21).
    """
    import tensorflow as tf

    kind = tf.where(tf.strings.regex_full_match(file, r"(?s).*\.gz"), "GZIP", "")
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.TFRecordDataset(file, compression_type=kind, buffer_size=1 << 20).with_options(options)


def check_whole(file: str | Path, size: int) -> None:
    """Raise ComponentError for a file that is truncated at the end of a record, or within its header.

    TensorFlow does not notice it. The size is that of all records in bytes, each with its `FRAME`.
    """
    if (_declared_size(file) - size) % (1 << 32) == 0:
        return
    # A file of several gzip members has a smaller size in its trailer.
    expected = _unpacked_size(file) if _is_gzip(file) else Path(file).stat().st_size
    if expected != size:
        raise damage_error(file, EOFError(f"{size} of {expected} bytes are whole records"))


def damage_error(file: str | Path, error: Exception) -> ExamplesError:
    """Return the error for a file that cannot be read to its end."""
    received = f"{file}: damaged or unreadable ({first_line(error)})"
    expected = "a complete TFRecord file, gzipped if its name ends in .gz"
    return ExamplesError(received, expected, "check its name, or write the examples again with: tfopt prepare_examples")


def _is_gzip(file: str | Path) -> bool:
    return str(file).endswith(".gz")


def _declared_size(file: str | Path) -> int:
    """Return the uncompressed size of a file in bytes, for gzip modulo 2**32 from its trailer."""
    length = Path(file).stat().st_size
    if not _is_gzip(file) or length == 0:
        return length
    if length < SMALLEST_GZIP:
        return -1
    with Path(file).open("rb") as stream:
        stream.seek(length - 4)
        return int.from_bytes(stream.read(4), "little")


def _unpacked_size(file: str | Path) -> int:
    try:
        with gzip.open(file) as unpacked:
            return sum(map(len, iter(lambda: unpacked.read(1 << 20), b"")))
    except (EOFError, OSError, zlib.error) as error:
        raise damage_error(file, error) from error
