"""TFRecord files, plain or gzipped, here or at an address: read whole, or refused."""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError, first_line

FRAME = 16  # what a TFRecord file adds to each record: its length and two checksums
SMALLEST_GZIP = 18  # a header and a trailer


def read_records(files: Iterable[str | Path]) -> Iterator[bytes]:
    """Yield the serialized records of TFRecord files.

    Raises:
        ComponentError: When a file is absent, truncated or no TFRecord file.
    """
    import tensorflow as tf

    for file in files:
        size = 0
        try:
            for block in opened(str(file)).batch(64).as_numpy_iterator():
                yield from block
                size += sum(map(len, block)) + FRAME * len(block)
        except tf.errors.OpError as error:
            raise damaged(file, error) from error
        check_whole([file], size)


def dataset(files: Sequence[str | Path]) -> Any:
    """One ``tf.data`` dataset of serialized records over all files in their order."""
    import tensorflow as tf

    names = tf.constant([str(file) for file in files], tf.string)
    records = tf.data.Dataset.from_tensor_slices(names).flat_map(tf.autograph.experimental.do_not_convert(opened))
    return _untuned(records)


def opened(file: Any) -> Any:
    """The dataset of one file, for ``tf.data`` to call with its name."""
    import tensorflow as tf

    kind = tf.where(tf.strings.regex_full_match(file, r".*\.gz"), "GZIP", "")
    return _untuned(tf.data.TFRecordDataset(file, compression_type=kind, buffer_size=1 << 20))


def framed(records: Any) -> Any:
    """How many bytes a tensor of serialized records takes in a file, for `check_whole`."""
    import tensorflow as tf

    return tf.reduce_sum(tf.cast(tf.strings.length(records) + FRAME, tf.int64))


def check_whole(files: Sequence[str | Path], size: int) -> None:
    """Refuse a gzip file that was cut where a record ends: TensorFlow reads it as if that were its end.

    Args:
        files: What was read to the end.
        size: How many bytes that gave, as `framed` counts them.

    Raises:
        ComponentError: When one of them is truncated.
    """
    if (sum(map(_promised, files)) - size) % (1 << 32) == 0:
        return
    for file in filter(_is_gzip, map(str, files)):  # a file of several gzip members says less, and may yet be whole
        _unpack(file)


def damaged(file: str | Path, error: Exception) -> ComponentError:
    """The refusal of a file that cannot be read to its end."""
    return ComponentError(
        f"{file}: damaged or unreadable ({first_line(error)})",
        "a whole TFRecord file, gzipped where its name ends in .gz",
        "write it again, or check its name",
    )


def _untuned(records: Any) -> Any:
    """Without the autotuner, and so is what is made of it: an iterator that ends may wait for the tuner's sleep.

    That thread sleeps 10 ms, 20 ms, 40 ms and so on (`ModelDataset` in TensorFlow's core), and is sometimes not woken:
    reading then takes up to twice as long, seen with TensorFlow 2.21. There is nothing here for it to tune.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return records.with_options(options)


def _is_gzip(file: str | Path) -> bool:
    return str(file).endswith(".gz")


def _promised(file: str | Path) -> int:
    """How many bytes a file should give, modulo 2**32 as gzip keeps it."""
    import tensorflow as tf

    length = int(tf.io.gfile.stat(str(file)).length)
    if not _is_gzip(file) or length == 0:
        return length
    if length < SMALLEST_GZIP:
        return -1
    with tf.io.gfile.GFile(str(file), "rb") as stream:
        stream.seek(length - 4)
        return int.from_bytes(stream.read(4), "little")


def _unpack(file: str) -> None:
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(file, "rb") as stream, gzip.GzipFile(fileobj=stream) as unpacked:
            while unpacked.read(1 << 20):
                pass
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(file, error) from error
