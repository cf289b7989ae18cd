"""Input code as it is often written, in the place of the pipeline of `train` in a process of its own.

    python -m naive DESCRIPTOR PIPELINE     (started by benchmarks/training.py)

Both parse record by record, keep nothing, and have no batch ready before it is asked for. What the module's
`preprocess` does is done to whole batches in all pipelines, which flatters these.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt.components.profile_training.worker import Worker
from tfopt.data.tfrecords import read_records
from tfopt.processes.rpc import answer
from tfopt.training.dataset import Source

WAITING = 10_000  # examples to be drawn from, at most
LONG_S = 3.0  # an epoch that takes longer is cut short


def main() -> None:
    """Measure trainings that are read so, whenever the parent asks."""
    descriptor, pipeline = sys.argv[1:]
    if pipeline in PIPELINES:
        setattr(Source, "shuffled", PIPELINES[pipeline])  # noqa: B010  (mypy would know better)
    answer(Connection(int(descriptor)), Naive() if pipeline in PIPELINES else Worker())


class Naive(Worker):
    """A training in which nothing has to settle, for nothing is kept or prepared ahead.

    Each epoch waits until as many examples are read as are drawn from, so whole epochs are counted where that can be.
    They begin in the middle of one: TensorFlow asks for the next batch by itself, and would read in others' turns.
    """

    _begun: frozenset[str] = frozenset()

    def burst(self, what: str, seconds: float) -> float:
        """Seconds of a step, or of a batch when ``what`` is ``input``."""
        step = functools.partial(next, self._read) if what == "input" else functools.partial(self._real.run, 1)
        if what not in self._begun:
            self._begun |= {what}
            for _ in range(self._epoch // 2):
                step()
        start, done = time.perf_counter(), 0
        while done < self._epoch and time.perf_counter() < start + LONG_S:
            step()
            done += 1
        return (time.perf_counter() - start) / done

    @functools.cached_property
    def _read(self) -> Iterator[Any]:
        return iter(self._source.shuffled(self._setup.batch_size, self._setup.seed).repeat())


def generator(source: Source, batch_size: int, seed: int) -> Any:
    """Each record parsed in Python, and handed over one by one."""

    def parsed() -> Iterator[dict[str, Any]]:
        for record in read_records(source.files):
            found = tf.train.Example.FromString(record).features.feature
            yield {name: _values(found[name]).astype(dtypes[name]) for name in dtypes}

    dtypes = {name: "O" if spec.dtype == "string" else spec.dtype for name, spec in source.stored.items()}
    kinds = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in source.stored.items()}
    return _batches(source, tf.data.Dataset.from_generator(parsed, output_signature=kinds), batch_size, seed)


def one_by_one(source: Source, batch_size: int, seed: int) -> Any:
    """Each record parsed alone, by TensorFlow."""
    columns = {name: tf.io.FixedLenFeature(spec.shape[1:], spec.dtype) for name, spec in source.stored.items()}
    kind = "GZIP" if str(source.files[0]).endswith(".gz") else ""
    records = tf.data.TFRecordDataset([str(file) for file in source.files], compression_type=kind)
    return _batches(source, records.map(lambda record: tf.io.parse_single_example(record, columns)), batch_size, seed)


PIPELINES: dict[str, Callable[[Source, int, int], Any]] = {"generator": generator, "one by one": one_by_one}


class _Parsed(Source):
    """A source whose blocks are parsed already."""

    def _columns(self, records: Any) -> dict[str, Any]:
        return dict(records)


def _batches(source: Source, examples: Any, batch_size: int, seed: int) -> Any:
    parsed = _Parsed(**{field.name: getattr(source, field.name) for field in fields(source)})
    drawn = examples.shuffle(min(source.count, WAITING), seed=seed)
    return drawn.batch(batch_size).map(tf.autograph.experimental.do_not_convert(parsed.prepared))


def _values(feature: Any) -> Any:
    return np.array(getattr(feature, feature.WhichOneof("kind")).value)


if __name__ == "__main__":
    main()
