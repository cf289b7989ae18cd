"""Records from shards: read in parts that many workers share, decoded in batches, and counted apart from both."""

import gzip
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_records
from tfopt.data.feature_schema import dense, parsers
from tfopt.data.tfrecords import check_whole, damaged, framed, opened

__all__ = ["Decoder", "count_records", "parts", "read_part", "read_records"]


def parts(files: list[str], workers: int) -> list[tuple[str, int, int]]:
    """Cut the files into at least as many parts as there are workers: ``(file, part, of how many)``."""
    each = -(-workers // len(files))
    return [(file, part, each) for file in files for part in range(each)]


def read_part(file: str, part: int, of: int, batch_size: int) -> Iterator[tuple[int, Any]]:
    """Yield every ``of``-th batch of a file, with its place: the batches are the same whoever reads them.

    The other parts' batches are only measured, so that each reader knows the file to be whole. That costs their
    decompression, which is small beside running models, and lets a single gzipped shard keep many workers busy.

    Raises:
        ComponentError: When the file is truncated or is no TFRecord file.
    """
    import tensorflow as tf

    size = 0
    try:
        for place, batch in enumerate(opened(file).batch(batch_size)):
            size += int(framed(batch))
            if place % of == part:
                yield place, batch
    except tf.errors.OpError as error:
        raise damaged(file, error) from error
    check_whole([file], size)


class Decoder:
    """Turns serialized tf.Examples into columns, and leaves out what cannot be used, with the reason."""

    def __init__(
        self, stored: Mapping[str, TensorSpec], label: str, slices: Iterable[str], inputs: Iterable[str]
    ) -> None:
        """Decode the label, the slice features and the models' inputs, as the first records stored them."""
        self.label = label
        self.columns = parsers({name: stored[name] for name in sorted({label, *slices, *inputs})})

    def decode(self, batch: Any) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]], Counter[str]]:
        """Return the places of the usable records in the batch, their columns, and why the others were skipped."""
        import tensorflow as tf

        kept, skipped = np.arange(len(batch)), Counter[str]()
        try:
            columns = tf.io.parse_example(batch, self.columns)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # some record is at fault; find out which
            reasons = [self._fault(record) for record in batch]
            skipped.update(reason for reason in reasons if reason)
            kept = np.flatnonzero([reason is None for reason in reasons])
            columns = tf.io.parse_example(tf.gather(batch, kept), self.columns)
        arrays = {name: dense(column).numpy() for name, column in columns.items()}
        if arrays[self.label].dtype.kind == "f" and not np.isfinite(arrays[self.label]).all():
            known = np.isfinite(arrays[self.label]).all(1)
            skipped["label is NaN or infinite"] += int((~known).sum())
            kept, arrays = kept[known], {name: array[known] for name, array in arrays.items()}
        return kept, arrays, skipped

    def _fault(self, record: Any) -> str | None:
        import tensorflow as tf
        from google.protobuf.message import DecodeError

        try:
            tf.io.parse_single_example(record, self.columns)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # its message quotes the bytes, or fails to
            try:
                found = tf.train.Example.FromString(record.numpy()).features.feature
            except DecodeError:
                return "not a tf.Example"
            return "no label" if self.label not in found else "a feature missing, or of another type or length"
        return None


def count_records(file: str) -> int:
    """Count the records of a TFRecord file by its framing alone, without the reader that `read_part` uses."""
    count, ahead, held = 0, 0, b""  # how far ahead of what is held the next record starts
    with gzip.open(file) if file.endswith(".gz") else Path(file).open("rb") as stream:
        while block := stream.read(1 << 20):
            held += block
            while ahead + 12 <= len(held):  # 8 bytes of length, 4 of its checksum, the record, 4 of its checksum
                ahead += struct.unpack_from("<Q", held, ahead)[0] + 16
                count += 1
            held, ahead = held[ahead:], max(ahead - len(held), 0)
    return count
