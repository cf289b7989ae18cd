"""Input code as it is often written, instead of the pipeline of `train`, in its own process.

    python -m naive DESCRIPTOR PIPELINE     (started by benchmarks/training.py)

Both pipelines parse record by record, cache nothing, and prepare no batch in advance. The module's `preprocess` runs on
whole batches in all pipelines, which favours these.
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
from tfopt.processes.worker_process import serve_calls
from tfopt.training.datasets.dataset import Source

SHUFFLE_BUFFER = 10_000  # examples
MAX_EPOCH_S = 3.0  # a longer epoch is cut short


def main() -> None:
    """Measure trainings with a naive pipeline, at the calls of the parent process."""
    descriptor, pipeline = sys.argv[1:]
    if pipeline in PIPELINES:
        setattr(Source, "shuffled", PIPELINES[pipeline])  # noqa: B010  (mypy refuses an assignment to a method)
    serve_calls(Connection(int(descriptor)), Naive() if pipeline in PIPELINES else Worker())


class Naive(Worker):
    """A training without warm-up, since nothing is cached or prepared in advance.

    Each epoch waits until the shuffle buffer is full, so whole epochs are measured if they are short enough. A
    measurement starts in the middle of an epoch: at its end TensorFlow requests the next batch by itself, and would
    read during the turns of others.
    """

    _started: frozenset[str] = frozenset()

    def burst(self, part: str, seconds: float) -> float:
        """Return the seconds of a step, or of a batch if the part is ``input``."""
        step = functools.partial(next, self._iterator) if part == "input" else functools.partial(self._real.run, 1)
        if part not in self._started:
            self._started |= {part}
            for _ in range(self._epoch // 2):
                step()
        start, done = time.perf_counter(), 0
        while done < self._epoch and time.perf_counter() < start + MAX_EPOCH_S:
            step()
            done += 1
        return (time.perf_counter() - start) / done

    @functools.cached_property
    def _iterator(self) -> Iterator[Any]:
        return iter(self._source.shuffled(self._variant.batch_size, self._variant.seed).repeat())


def generator(source: Source, batch_size: int, seed: int) -> Any:
    """Return batches of records that are parsed in Python and passed one by one."""

    def parsed() -> Iterator[dict[str, Any]]:
        for record in read_records(source.files):
            features = tf.train.Example.FromString(record).features.feature
            yield {name: _values(features[name]).astype(dtypes[name]) for name in dtypes}

    dtypes = {name: "O" if spec.dtype == "string" else spec.dtype for name, spec in source.stored.items()}
    specs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in source.stored.items()}
    return _batches(source, tf.data.Dataset.from_generator(parsed, output_signature=specs), batch_size, seed)


def one_by_one(source: Source, batch_size: int, seed: int) -> Any:
    """Return batches of records that TensorFlow parses one by one."""
    columns = {name: tf.io.FixedLenFeature(spec.shape[1:], spec.dtype) for name, spec in source.stored.items()}
    compression = "GZIP" if str(source.files[0]).endswith(".gz") else ""
    records = tf.data.TFRecordDataset([str(file) for file in source.files], compression_type=compression)
    return _batches(source, records.map(lambda record: tf.io.parse_single_example(record, columns)), batch_size, seed)


PIPELINES: dict[str, Callable[[Source, int, int], Any]] = {"generator": generator, "one by one": one_by_one}


class _ParsedSource(Source):
    """A source whose blocks are already parsed."""

    def _parse(self, records: Any) -> dict[str, Any]:
        return dict(records)


def _batches(source: Source, examples: Any, batch_size: int, seed: int) -> Any:
    parsed = _ParsedSource(**{field.name: getattr(source, field.name) for field in fields(source)})
    shuffled = examples.shuffle(min(source.count, SHUFFLE_BUFFER), seed=seed)
    return shuffled.batch(batch_size).map(tf.autograph.experimental.do_not_convert(parsed.prepare))


def _values(feature: Any) -> Any:
    return np.array(getattr(feature, feature.WhichOneof("kind")).value)


if __name__ == "__main__":
    main()
