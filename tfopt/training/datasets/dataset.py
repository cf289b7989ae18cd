"""The tf.data pipeline of a split: shards read in parallel, parsed in blocks, cached in memory if they fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import psutil
import tensorflow as tf

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import column_name
from tfopt.data.feature_schema import parsing_specs
from tfopt.data.tfrecords import file_dataset
from tfopt.errors import ComponentError
from tfopt.training.datasets.input_settings import InputSettings
from tfopt.value_types import Tensors

FLOAT32_BYTES = 4
BLOCK = 256  # records parsed in one call
BLOCKS = 2  # cached in memory to measure parsing
HOLD_OUT_EVERY = 10  # one of this many records is held out
SHUFFLE_BUFFER = 20_000  # records, if the split does not fit in memory
DEFAULTS = InputSettings()


class LabelsAndTeacher(NamedTuple):
    """The targets of a batch in distillation: labels as without a teacher, its outputs by the student's output name."""

    labels: Any
    teacher: Any


@dataclass(frozen=True)
class TeacherOutputs:
    """The teacher's outputs for every record of a split."""

    files: Sequence[Path]  # one file for each TFRecord file, in the same order: rows of float32, one row per record
    # the shape of an output, by the student's output name; a row holds one value of each, in this order
    shapes: Mapping[str, tuple[int, ...]]

    def open(self, records: Any, rows: Any) -> Any:
        """Return the dataset of (record, row) pairs of one TFRecord file; tf.data calls it with the file names."""
        length = FLOAT32_BYTES * sum(map(math.prod, self.shapes.values()))
        return tf.data.Dataset.zip((file_dataset(records), tf.data.FixedLengthRecordDataset(rows, length)))

    def attach(self, labels: Any, rows: Any) -> LabelsAndTeacher:
        """Combine the labels of a block with the teacher's outputs, decoded from its rows."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = tf.split(tf.io.decode_raw(rows, tf.float32), sizes, axis=1)
        shaped = zip(self.shapes.items(), parts, strict=True)
        return LabelsAndTeacher(labels, {name: tf.reshape(part, [-1, *shape]) for (name, shape), part in shaped})


@dataclass(frozen=True)
class Source:
    """The records of a split and their conversion into batches."""

    files: Sequence[Path]  # TFRecord files, gzipped if the name ends in ``.gz``
    count: int  # number of records
    stored: Mapping[str, TensorSpec]  # how each feature that is read is stored
    inputs: Mapping[str, TensorSpec]  # the model's inputs, by name, with the features that feed them
    # converts a block of inputs and of stored features into what `fit` takes
    transform: Callable[[Tensors, Tensors], tuple[Any, Any]]
    # all records of the files, every `HOLD_OUT_EVERY`-th one (held), or the others (rest)
    part: Literal["all", "held", "rest"] = "all"
    settings: InputSettings = DEFAULTS
    folder: Path = Path()  # where the cache on disk is written
    replicas: int = 1  # that share each batch. None may get an empty part: its mean would be NaN
    teacher: TeacherOutputs | None = None  # the teacher's outputs for these records; None without a teacher

    def hold_out(self) -> tuple[Self, Self]:
        """Return the records to train on, and every `HOLD_OUT_EVERY`-th one; raise ComponentError if none are left."""
        held = -(-self.count // HOLD_OUT_EVERY)
        if held == self.count:
            received = f"{self.count} records to train on, with every {HOLD_OUT_EVERY}th held out"
            raise ComponentError(received, "at least 2", "prepare more examples, or leave recover out")
        rest = replace(self, count=self.count - held, part="rest")
        return rest, replace(self, count=held, part="held")

    def shuffled(self, batch_size: int, seed: int) -> Any:
        """Return a dataset of batches, in another order in each epoch; the orders are determined by the seed."""
        blocks = self._blocks()
        records = _unbatch(blocks)
        fits = self._fits_in_memory(records)
        buffer = self.settings.shuffle_buffer or (self.count if fits else SHUFFLE_BUFFER)
        records = self._cache(records, fits, "drawn").shuffle(min(self.count, buffer), seed=seed)
        if self.replicas > 1:  # another epoch's order includes the records that are dropped in this one
            full_batches = _batch(records, blocks, batch_size, drop_remainder=True)
            return self._prefetch(full_batches, self.count // batch_size)
        return self._prefetch(_batch(records, blocks, batch_size), math.ceil(self.count / batch_size))

    def in_order(self) -> Any:
        """Return a dataset of large batches in the order of the files, for validation."""
        blocks = self._blocks()
        blocks = self._cache(blocks, self._fits_in_memory(_unbatch(blocks)), "in order")
        if self.replicas > 1:
            # the largest size for which no batch, in particular the last, is smaller than the replicas
            sizes = range(BLOCK, 0, -1)
            size = next(size for size in sizes if not 0 < self.count % size < self.replicas)
            batches = _batch(_unbatch(blocks), blocks, size)
            return self._prefetch(batches, math.ceil(self.count / size))
        return self._prefetch(blocks, math.ceil(self.count / BLOCK))

    def first_batch(self, batch_size: int, *, full: bool = False) -> Any:
        """Return the first batch. With ``full``, the records of a smaller split are repeated to fill it."""
        blocks = self._blocks()
        records = _unbatch(blocks).repeat() if full else _unbatch(blocks)
        return next(iter(_batch(records, blocks, batch_size).take(1)))

    def is_cached(self) -> bool:
        """Return True if the prepared examples are cached after the first epoch."""
        if self.settings.cache == "auto":
            return self._fits_in_memory(_unbatch(self._blocks()))
        return self.settings.cache != "off"

    def stage_datasets(self, batch_size: int) -> dict[str, Any]:
        """Return an endless dataset for each stage alone; all but ``read`` take their input from memory.

        ``read`` returns blocks of the files, ``parse`` their features, ``prepare`` parses and preprocesses, ``batch``
        returns batches.
        """
        raw = self._records().batch(BLOCK)
        cached = raw.take(BLOCKS).cache().repeat()
        prepared = _map(raw.take(1), self.prepare).cache().repeat()
        stages = {
            "read": raw.repeat(),
            "parse": _map(cached, self._parse),
            "prepare": _map(cached, self.prepare),
            "batch": prepared.unbatch().shuffle(BLOCK).batch(batch_size),
        }
        return {name: stage.with_options(self._tf_options()) for name, stage in stages.items()}

    def prepare(self, records: Any, rows: Any = None) -> tuple[Any, Any]:
        """Return what `fit` takes from a block of serialized records and, with a teacher, rows of its outputs."""
        parsed = self._parse(records)
        inputs, labels = self.transform(self._inputs(parsed), parsed)
        return inputs, labels if self.teacher is None else self.teacher.attach(labels, rows)

    def first_inputs(self, count: int) -> Tensors:
        """Return the inputs of the first records, before the user's preprocessing."""
        return self._inputs(self._parse(next(iter(self._records().batch(count).take(1)))))

    def _inputs(self, parsed: Mapping[str, Any]) -> Tensors:
        return {name: _cast(parsed[column_name(name, spec)], spec) for name, spec in self.inputs.items()}

    def _blocks(self) -> Any:
        return _map(self._records().batch(BLOCK), self.prepare)

    def _records(self) -> Any:
        as_is = tf.autograph.experimental.do_not_convert
        names: Any = [str(file) for file in self.files]
        names = names if self.teacher is None else (names, [str(file) for file in self.teacher.files])
        records = tf.data.Dataset.from_tensor_slices(names).interleave(
            as_is(file_dataset if self.teacher is None else self.teacher.open),
            cycle_length=min(len(self.files), 8),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        if self.part != "all":
            is_held = self.part == "held"
            numbered = records.enumerate()
            numbered = numbered.filter(as_is(lambda index, record: tf.equal(index % HOLD_OUT_EVERY == 0, is_held)))
            records = numbered.map(as_is(lambda index, record: record))
        return records

    def _parse(self, records: Any) -> Tensors:
        return tf.io.parse_example(records, parsing_specs(self.stored))  # type: ignore[no-any-return]

    def _fits_in_memory(self, records: Any) -> bool:
        specs, count = tf.nest.flatten(records.element_spec), 1
        if not all(isinstance(spec, tf.TensorSpec) for spec in specs):  # ragged or sparse: estimate from one block
            count = min(self.count, BLOCK)
            block = next(iter(records.batch(count).take(1)))
            specs = tf.nest.flatten(block, expand_composites=True)
        size = sum(math.prod(side or 1 for side in spec.shape) * (spec.dtype.size or 64) for spec in specs) / count
        allowed = (self.settings.memory_mb << 20) or psutil.virtual_memory().available / 4
        return bool(size * self.count < allowed)

    def _cache(self, records: Any, fits: bool, name: str) -> Any:
        cache = self.settings.cache
        if cache == "disk":
            return records.cache(str(self.folder / name))
        return records.cache() if cache == "memory" or (cache == "auto" and fits) else records

    def _prefetch(self, batches: Any, count: int) -> Any:
        """Prefetch, and set the number of batches: without it Keras warns at the end of the data."""
        prefetch = self.settings.prefetch
        batches = batches.apply(tf.data.experimental.assert_cardinality(count))
        batches = batches.prefetch(prefetch) if prefetch else batches
        return batches.with_options(self._tf_options())

    def _tf_options(self) -> Any:
        options = tf.data.Options()
        if self.settings.threads:
            options.threading.private_threadpool_size = self.settings.threads
        if self.replicas > 1:  # each worker reads all records and uses its part of every batch
            options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return options


def _map(blocks: Any, function: Callable[[Any], Any]) -> Any:
    return blocks.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=tf.data.AUTOTUNE)


def _cast(values: Any, spec: TensorSpec) -> Any:
    values = values if spec.dtype == "string" else tf.cast(values, spec.dtype)
    if not isinstance(values, tf.Tensor):  # ragged or sparse
        return values
    return tf.reshape(values, [-1, *(size if size is not None else -1 for size in spec.shape[1:])])


def _unbatch(blocks: Any) -> Any:
    """Return a dataset of single records from a dataset of blocks; dimensions of variable size become ragged.

    If a model takes inputs of any length, each block is padded to its own longest record, and ``tf.data`` only batches
    records of equal size. So records are taken out of their blocks as ragged tensors and padded again per batch.
    """

    def make_ragged(part: Any) -> Any:
        axis = _last_open_axis(part)
        return tf.RaggedTensor.from_tensor(part, ragged_rank=axis) if axis else part

    if not any(map(_last_open_axis, tf.nest.flatten(blocks.element_spec))):
        return blocks.unbatch()
    convert = tf.autograph.experimental.do_not_convert(lambda *block: tf.nest.map_structure(make_ragged, block))
    return blocks.map(convert).unbatch()


def _batch(records: Any, blocks: Any, size: int, *, drop_remainder: bool = False) -> Any:
    """Return a dataset of batches with the structure of the blocks, each padded at the end to its longest record.

    The records are those of `_unbatch`, in any order.
    """

    def pad(*batch: Any) -> Any:
        return tf.nest.map_structure(
            lambda spec, part: part.to_tensor() if _last_open_axis(spec) else part, blocks.element_spec, batch
        )

    batches = records.batch(size, drop_remainder=drop_remainder)
    if not any(map(_last_open_axis, tf.nest.flatten(blocks.element_spec))):
        return batches
    return batches.map(tf.autograph.experimental.do_not_convert(pad))


def _last_open_axis(part: Any) -> int:
    """Return the last axis, other than that of the records, whose size differs between blocks; 0 if there is none."""
    if not isinstance(part, tf.Tensor | tf.TensorSpec) or part.shape.rank is None:
        return 0
    return max((axis for axis, size in enumerate(part.shape) if axis and size is None), default=0)
