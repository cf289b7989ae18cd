"""A split as tf.data reads it while training: shards side by side, parsed in blocks, kept in memory where they fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import psutil

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import parsers
from tfopt.data.tfrecords import opened
from tfopt.errors import ComponentError
from tfopt.training.ragged_batches import batches_of, records_of
from tfopt.training.teacher_outputs import Answers

BLOCK = 256  # records parsed by one call
BLOCKS = 2  # in memory, to see what it takes to parse them
EVERY = 10  # of so many records one is held out, where some are
SHUFFLED = 20_000  # records that wait to be drawn when the split is too large for memory


@dataclass(frozen=True)
class Reading:
    """How a split is read, where that is not left to its size.

    Attributes:
        cache: Where parsed records stay after the first epoch: in ``memory``, on ``disk``, nowhere (``off``), or in
            memory where they fit (``auto``).
        shuffle: Records that wait to be drawn; all where they fit in memory, else `SHUFFLED`, when 0.
        memory_bytes: What records may take of it; a quarter of what is free when 0.
        threads: That read and parse; as many as there are cores when 0.
        folder: For the cache on disk.
        prefetch: Batches that wait ready while one is learnt.
        replicas: Among which each batch is divided. No part may be empty: the mean over nothing is no number.
    """

    cache: str = "auto"
    shuffle: int = 0
    memory_bytes: int = 0
    threads: int = 0
    folder: Path = Path()
    prefetch: int = 2
    replicas: int = 1


@dataclass(frozen=True)
class Source:
    """A split's records and what is made of them.

    Attributes:
        files: TFRecord files, gzipped where the name ends in ``.gz``.
        count: Records in them.
        stored: How each feature that is read is stored.
        inputs: What the model takes, by the features' names.
        transform: From a block of inputs and of stored features to what ``fit`` takes.
        part: All records of the files, every `EVERY`-th (held), or the others (rest).
        reading: How.
        answers: Of a teacher, to these records; None where there is none.
    """

    files: Sequence[Path]
    count: int
    stored: Mapping[str, TensorSpec]
    inputs: Mapping[str, TensorSpec]
    transform: Callable[[dict[str, Any], dict[str, Any]], tuple[Any, Any]]
    part: Literal["all", "held", "rest"] = "all"
    reading: Reading = Reading()
    answers: Answers | None = None

    def set_apart(self) -> tuple[Self, Self]:
        """Two sources without a record in common: what is learnt, and every `EVERY`-th record, which is not.

        Raises:
            ComponentError: When there is nothing left to learn from.
        """
        held = -(-self.count // EVERY)
        if held == self.count:
            raise ComponentError(
                f"{self.count} records to learn from, of which every {EVERY}th is held out",
                "at least 2",
                "prepare more examples, or leave recover out",
            )
        rest = replace(self, count=self.count - held, part="rest")
        return rest, replace(self, count=held, part="held")

    def shuffled(self, batch_size: int, seed: int) -> Any:
        """Batches in another order each epoch; the same orders for the same seed."""
        blocks = self._blocks()
        records = records_of(blocks)
        fits = self._fits_in_memory(records)
        drawn = self.reading.shuffle or (self.count if fits else SHUFFLED)
        records = self._cached(records, fits, "drawn").shuffle(min(self.count, drawn), seed=seed)
        if self.reading.replicas > 1:  # those left over have their turn in another epoch's order
            whole = batches_of(records, blocks, batch_size, drop_remainder=True)
            return self._counted(whole, self.count // batch_size)
        return self._counted(batches_of(records, blocks, batch_size), math.ceil(self.count / batch_size))

    def in_order(self) -> Any:
        """Large batches in the files' order, to validate on."""
        blocks = self._blocks()
        blocks = self._cached(blocks, self._fits_in_memory(records_of(blocks)), "in order")
        if self.reading.replicas > 1:
            size = self._size()
            return self._counted(batches_of(records_of(blocks), blocks, size), math.ceil(self.count / size))
        return self._counted(blocks, math.ceil(self.count / BLOCK))

    def one(self, batch_size: int, *, full: bool = False) -> Any:
        """The first batch; of a split with fewer records, it has them again and again where it is to be full."""
        blocks = self._blocks()
        records = records_of(blocks).repeat() if full else records_of(blocks)
        return next(iter(batches_of(records, blocks, batch_size).take(1)))

    def cached(self) -> bool:
        """Whether the examples stay, prepared, after the first epoch."""
        if self.reading.cache == "auto":
            return self._fits_in_memory(records_of(self._blocks()))
        return self.reading.cache != "off"

    def stages(self, batch_size: int) -> dict[str, Any]:
        """What each stage does alone, over and over; all but the first have in memory what they need.

        ``read`` gives blocks of the files, ``parse`` their features, ``prepare`` parses and prepares, ``batch`` gives
        batches.
        """
        raw = self._records().batch(BLOCK)
        there = raw.take(BLOCKS).cache().repeat()
        prepared = _mapped(raw.take(1), self.prepared).cache().repeat()
        stages = {
            "read": raw.repeat(),
            "parse": _mapped(there, self._columns),
            "prepare": _mapped(there, self.prepared),
            "batch": prepared.unbatch().shuffle(BLOCK).batch(batch_size),
        }
        return {name: stage.with_options(self._options()) for name, stage in stages.items()}

    def prepared(self, records: Any, rows: Any = None) -> tuple[Any, Any]:
        """What ``fit`` takes, of a block of serialized records and, with a teacher, of rows of its answers."""
        parsed = self._columns(records)
        taken, labels = self.transform(self._raw(parsed), parsed)
        return taken, labels if self.answers is None else self.answers.beside(labels, rows)

    def raw(self, count: int) -> dict[str, Any]:
        """The inputs of the first records, before any of the user's preprocessing."""
        return self._raw(self._columns(next(iter(self._records().batch(count).take(1)))))

    def _raw(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _typed(parsed[name], spec) for name, spec in self.inputs.items()}

    def _blocks(self) -> Any:
        return _mapped(self._records().batch(BLOCK), self.prepared)

    def _records(self) -> Any:
        import tensorflow as tf

        as_written = tf.autograph.experimental.do_not_convert
        names: Any = [str(file) for file in self.files]
        names = names if self.answers is None else (names, self.answers.names)
        records = tf.data.Dataset.from_tensor_slices(names).interleave(
            as_written(opened if self.answers is None else self.answers.opened),
            cycle_length=min(len(self.files), 8),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        if self.part != "all":
            numbered = records.enumerate().filter(as_written(self._belongs))
            records = numbered.map(as_written(lambda place, record: record))
        return records

    def _belongs(self, place: Any, record: Any) -> Any:
        import tensorflow as tf

        return tf.equal(place % EVERY == 0, self.part == "held")

    def _columns(self, records: Any) -> dict[str, Any]:
        import tensorflow as tf

        return tf.io.parse_example(records, parsers(self.stored))  # type: ignore[no-any-return]

    def _fits_in_memory(self, records: Any) -> bool:
        import tensorflow as tf

        specs, per = tf.nest.flatten(records.element_spec), 1
        if not all(isinstance(spec, tf.TensorSpec) for spec in specs):  # ragged or sparse: as large as some of them are
            per = min(self.count, BLOCK)
            block = next(iter(records.batch(per).take(1)))
            specs = tf.nest.flatten(block, expand_composites=True)
        size = sum(math.prod(side or 1 for side in spec.shape) * (spec.dtype.size or 64) for spec in specs) / per
        allowed = self.reading.memory_bytes or psutil.virtual_memory().available / 4
        return bool(size * self.count < allowed)

    def _cached(self, records: Any, fits: bool, name: str) -> Any:
        cache = self.reading.cache
        if cache == "disk":
            return records.cache(str(self.reading.folder / name))
        return records.cache() if cache == "memory" or (cache == "auto" and fits) else records

    def _counted(self, batches: Any, count: int) -> Any:
        """Say how many there are, or Keras warns when they end."""
        import tensorflow as tf

        batches = batches.apply(tf.data.experimental.assert_cardinality(count))
        batches = batches.prefetch(self.reading.prefetch) if self.reading.prefetch else batches
        return batches.with_options(self._options())

    def _options(self) -> Any:
        import tensorflow as tf

        options = tf.data.Options()
        if self.reading.threads:
            options.threading.private_threadpool_size = self.reading.threads
        if self.reading.replicas > 1:  # each worker reads all and takes its part of every batch
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return options

    def _size(self) -> int:
        """Of batches none of which, the last one least, is smaller than there are replicas."""
        sizes = range(BLOCK, 0, -1)
        return next(size for size in sizes if not 0 < self.count % size < self.reading.replicas)


def _mapped(blocks: Any, function: Callable[[Any], Any]) -> Any:
    import tensorflow as tf

    return blocks.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=tf.data.AUTOTUNE)


def _typed(values: Any, spec: TensorSpec) -> Any:
    import tensorflow as tf

    if not isinstance(values, tf.Tensor):  # ragged or sparse
        return values if spec.dtype == "string" else tf.cast(values, spec.dtype)
    shape = [-1, *(size if size is not None else -1 for size in spec.shape[1:])]
    return tf.reshape(values if spec.dtype == "string" else tf.cast(values, spec.dtype), shape)
