"""A split as tf.data reads it while training: shards side by side, parsed in blocks, kept in memory where they fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tfopt.runtimes import TensorSpec
from tfopt.tfrecords import opened

BLOCK = 256  # records parsed by one call
SHUFFLED = 20_000  # records that wait to be drawn when the split is too large for memory


@dataclass(frozen=True)
class Source:
    """A split's records and what is made of them.

    Attributes:
        files: TFRecord files, gzipped where the name ends in ``.gz``.
        count: Records in them.
        stored: How each feature that is read is stored.
        inputs: What the model takes, by the features' names.
        transform: From a block of inputs and of stored features to what ``fit`` takes.
    """

    files: Sequence[Path]
    count: int
    stored: Mapping[str, TensorSpec]
    inputs: Mapping[str, TensorSpec]
    transform: Callable[[dict[str, Any], dict[str, Any]], tuple[Any, Any]]

    def shuffled(self, batch_size: int, seed: int) -> Any:
        """Batches in another order each epoch; the same orders for the same seed."""
        records = self._blocks().unbatch()
        fits = self._fits_in_memory(records)
        records = records.cache() if fits else records
        records = records.shuffle(self.count if fits else min(self.count, SHUFFLED), seed=seed)
        return _counted(records.batch(batch_size), math.ceil(self.count / batch_size))

    def in_order(self) -> Any:
        """Large batches in the files' order, to validate on."""
        blocks = self._blocks()
        blocks = blocks.cache() if self._fits_in_memory(blocks.unbatch()) else blocks
        return _counted(blocks, math.ceil(self.count / BLOCK))

    def _blocks(self) -> Any:
        import tensorflow as tf

        as_written = tf.autograph.experimental.do_not_convert
        files = tf.data.Dataset.from_tensor_slices([str(file) for file in self.files])
        records = files.interleave(
            as_written(opened), cycle_length=min(len(self.files), 8), num_parallel_calls=tf.data.AUTOTUNE
        )
        return records.batch(BLOCK).map(as_written(self._parse), num_parallel_calls=tf.data.AUTOTUNE)

    def _parse(self, records: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        columns = {name: tf.io.FixedLenFeature([spec.shape[1]], spec.dtype) for name, spec in self.stored.items()}
        parsed = tf.io.parse_example(records, columns)
        inputs = {name: _typed(parsed[name], spec) for name, spec in self.inputs.items()}
        return self.transform(inputs, parsed)

    def _fits_in_memory(self, records: Any) -> bool:
        import tensorflow as tf

        specs = tf.nest.flatten(records.element_spec)
        size = sum(math.prod(side or 1 for side in spec.shape) * (spec.dtype.size or 64) for spec in specs)
        return bool(size * self.count < psutil.virtual_memory().available / 4)


def _counted(batches: Any, count: int) -> Any:
    """Say how many there are, or Keras warns when they end."""
    import tensorflow as tf

    return batches.apply(tf.data.experimental.assert_cardinality(count)).prefetch(2)


def _typed(values: Any, spec: TensorSpec) -> Any:
    import tensorflow as tf

    shape = [-1, *(size if size is not None else -1 for size in spec.shape[1:])]
    return tf.reshape(values if spec.dtype == "string" else tf.cast(values, spec.dtype), shape)
