"""Records of the evaluated split: its files, read ahead in parts by many workers, decoded in batches."""

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec
from tfopt.components.evaluate.metrics.accumulators import Part, Position
from tfopt.data.batches import RECORDS
from tfopt.data.feature_schema import densify, parsing_specs, required_features
from tfopt.data.tfrecords import read_blocks
from tfopt.errors import ComponentError
from tfopt.storage.remote_files import is_remote, list_remote_files, local_copy

T = TypeVar("T")

AUTO, UNSEEN, SEEN = "auto", "test", "eval"
TRAINING_SPLIT = "train"
PREFETCHED = 4  # batches


def choose_split(examples: Examples, split: str) -> str:
    """Return the requested split; for ``auto`` the one that no training uses, if there is one."""
    if split != AUTO:
        return split
    return UNSEEN if find_files(examples, UNSEEN) else SEEN


def split_files(examples: Examples, split: str) -> list[str]:
    """Return the record files of a split, local paths or remote addresses; raise ComponentError if there are none."""
    if files := find_files(examples, split):
        return files
    if not is_remote(examples.uri):
        examples.split(split)  # raises an error that lists the splits
    address = f"{examples.uri.rstrip('/')}/Split-{split}/"
    raise ComponentError(f"{address}: no files", Examples.contents, "name another split, or check the address")


def find_files(examples: Examples, split: str) -> list[str]:
    """Return the record files of a split; none if there is no such split."""
    if not is_remote(examples.uri):
        return [str(file) for file in examples.splits.get(split, [])]
    prefix = f"{examples.uri.rstrip('/')}/Split-{split}/"
    return [file for file in list_remote_files(examples.uri) if file.startswith(prefix)]


def split_into_parts(files: list[str], workers: int) -> list[Part]:
    """Split the files into at least as many parts as there are workers."""
    each = -(-workers // max(len(files), 1))
    return [(file, part, each) for file in files for part in range(each)]


def read_part(file: str, part: int, of: int, batch_size: int) -> Iterator[tuple[int, Any]]:
    """Yield every ``of``-th batch of a file, with its index. The batches do not depend on the number of parts.

    The batches of other parts are read too, so that each reader detects a truncated file. This costs their
    decompression, which is small next to running models, and lets many workers share a single gzipped shard.

    Raises:
        ComponentError: If the file is truncated or is not a TFRecord file.
    """
    for index, block in enumerate(read_blocks([file], batch_size)):
        if index % of == part:
            yield index, tf.constant(block)


def read_parts(
    parts: Iterable[Part], batch_size: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[Position, Any]]:
    """Yield the batches of several parts and their positions: those with the numbers ``start`` to ``stop`` of all."""
    batches = (
        ((PurePath(file).name, index), batch)
        for file, part, of in parts
        for index, batch in read_part(local_copy(file), part, of, batch_size)
    )
    return itertools.islice(batches, start, stop)


class Decoder:
    """Decodes serialized tf.Examples to columns and skips records that cannot be used, with the reason."""

    def __init__(
        self, features: Mapping[str, TensorSpec], label: str, slices: Iterable[str], inputs: Mapping[str, TensorSpec]
    ) -> None:
        """Decode the label, the slice features and the models' inputs with the stored dtypes and shapes."""
        self.label = label
        self.has_record_input = any(isinstance(spec, RecordSpec) for spec in inputs.values())
        names = {label, *slices, *required_features(inputs)}
        self.columns = parsing_specs({name: features[name] for name in sorted(names)})

    def decode(self, batch: Any) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]], Counter[str]]:
        """Return the indices of the usable records in the batch, their columns, and the skipped records by reason.

        The column `RECORDS` has the serialized records, if a model parses them.
        """
        usable, skipped = np.arange(len(batch)), Counter[str]()
        try:
            columns = tf.io.parse_example(batch, self.columns)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # parse one by one to find the bad records
            reasons = [self._fault(record) for record in batch]
            skipped.update(reason for reason in reasons if reason)
            usable = np.flatnonzero([reason is None for reason in reasons])
            columns = tf.io.parse_example(tf.gather(batch, usable), self.columns)
        arrays = {name: densify(column).numpy() for name, column in columns.items()}
        if self.has_record_input:
            arrays[RECORDS] = batch.numpy()[usable]
        if arrays[self.label].dtype.kind == "f" and not np.isfinite(arrays[self.label]).all():
            finite = np.isfinite(arrays[self.label]).all(1)
            skipped["label is NaN or infinite"] += int((~finite).sum())
            usable, arrays = usable[finite], {name: array[finite] for name, array in arrays.items()}
        return usable, arrays, skipped

    def _fault(self, record: Any) -> str | None:
        try:
            tf.io.parse_single_example(record, self.columns)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # the message quotes raw bytes, so it is not used
            try:
                features = tf.train.Example.FromString(record.numpy()).features.feature
            except DecodeError:
                return "not a tf.Example"
            return "no label" if self.label not in features else "a feature missing, or of another type or length"
        return None


def prefetch(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield the items in order, with up to ``count`` of them computed ahead in one thread.

    An exception of the iterable is raised after the items before it. The thread ends if the caller stops early.

    >>> list(prefetch(range(3), 2))
    [0, 1, 2]
    """
    source, end, thread = iter(items), object(), ThreadPoolExecutor(1, "prefetch")
    try:
        waiting: deque[Future[Any]] = deque(thread.submit(next, source, end) for _ in range(count))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, source, end))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
