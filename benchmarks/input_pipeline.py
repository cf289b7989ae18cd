"""How fast batches come, without a model: the pipeline of `train` against code that is often written instead.

    python benchmarks/input_pipeline.py [--rounds 5]

Every pipeline gives batches of 64 of the same shuffled examples. They take turns, an epoch each, after one epoch that
does not count; the ratio is the median over the rounds of (its time / the time of ours). `generator` parses each record
in Python and hands it over with `from_generator`; `one by one` parses in TensorFlow, record by record, with no cache.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt.examples import feature_specs
from tfopt.runtimes import TensorSpec
from tfopt.tfrecords import read_records
from tfopt.training.dataset import Source
from tfopt.training.sources import first_record

COUNT, SIDE, BATCH = 5000, 28, 64
GOAL = 3.0  # times as fast as `generator`


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        file = write_examples(Path(folder))
        pipelines = {"ours": ours(file), "one by one": one_by_one(file), "generator": generator(file)}
        for batches in pipelines.values():
            seconds(batches)
        found = [{name: seconds(batches) for name, batches in pipelines.items()} for _ in range(rounds)]
    for name in pipelines:
        took = statistics.median(each[name] for each in found)
        ratios = sorted(each[name] / each["ours"] for each in found)
        print(
            f"{name:11} {COUNT / took:9.0f} examples/s   {statistics.median(ratios):5.1f} times the time of ours"
            f" ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        )
    reached = statistics.median(each["generator"] / each["ours"] for each in found) >= GOAL
    print(f"at least {GOAL:g} times as fast as generator: {'yes' if reached else 'NO'}")


def write_examples(folder: Path) -> Path:
    """Made-up grey images in one gzipped file: what is in them does not change how long they take."""
    random, file = np.random.default_rng(0), folder / "data.gz"
    with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
        for label in random.integers(0, 10, COUNT):
            image = tf.train.FloatList(value=random.integers(0, 256, SIDE * SIDE).astype(np.float32))
            features = {
                "image": tf.train.Feature(float_list=image),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return file


def ours(file: Path) -> Any:
    """As `train` reads."""
    stored = feature_specs(first_record([file]))
    inputs = {"image": TensorSpec("float32", (None, SIDE, SIDE, 1))}

    def transform(given: dict[str, Any], parsed: dict[str, Any]) -> tuple[Any, Any]:
        return given["image"], parsed["label"][:, 0]

    return Source([file], COUNT, stored, inputs, transform).shuffled(BATCH, 0)


def one_by_one(file: Path) -> Any:
    """Each record parsed alone."""
    columns = {
        "image": tf.io.FixedLenFeature([SIDE, SIDE, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_single_example(record, columns)
        return parsed["image"], parsed["label"]

    records = tf.data.TFRecordDataset(str(file), compression_type="GZIP")
    return records.map(parse).shuffle(COUNT, seed=0).batch(BATCH)


def generator(file: Path) -> Any:
    """Each record parsed in Python."""

    def parsed() -> Iterator[tuple[Any, int]]:
        for record in read_records([file]):
            features = tf.train.Example.FromString(record).features.feature
            image = np.array(features["image"].float_list.value, np.float32).reshape(SIDE, SIDE, 1)
            yield image, features["label"].int64_list.value[0]

    kinds = tf.TensorSpec((SIDE, SIDE, 1), tf.float32), tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(parsed, output_signature=kinds).shuffle(COUNT, seed=0).batch(BATCH)


def seconds(batches: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long an epoch takes."""
    start, count = clock(), 0
    for images, _ in batches:
        count += len(images)
    assert count == COUNT
    return clock() - start


if __name__ == "__main__":
    main()
