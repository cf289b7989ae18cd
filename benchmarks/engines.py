"""Throughput of `prepare_examples` and `evaluate` on Flink and Spark clusters, next to the DirectRunner and Dask.

    python benchmarks/engines.py [--rows 200000] [--examples 200000] [--workers 1 2] [--runners direct dask flink spark]

The clusters are processes on this machine (tests/beam_engines/clusters.py): a JobManager and TaskManagers of Flink, a
master and workers of Spark, each with one Python worker of one thread. Rows are CSV with eight numbers and a label of
three words; examples have eight features, for two Keras models of two layers. Each run is measured once, from the call
to its end, with the start of the job server and of the workers; a cluster runs already, as in production. Every result
is compared with that of the DirectRunner: the bytes of all splits, and the whole report. Only ratios within one run are
meaningful.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
os.environ["PYTHONWARNINGS"] = "ignore"

import numpy as np

FILES = 16
FEATURES = 8
Context = contextlib.AbstractContextManager[list[str]]


def main() -> None:
    """Measure every runner and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="of prepare_examples; 0 leaves it out")
    parser.add_argument("--examples", type=int, default=200_000, help="of evaluate; 0 leaves it out")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runners", nargs="+", choices=list(RUNNERS), default=list(RUNNERS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where temporary files are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-", dir=arguments.folder) as name:
        rows = list(measure(Path(name), arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Write the data, run both components on each runner, print a line for each, and yield it."""
    works: dict[str, tuple[int, Callable[[Path], Any]]] = {}
    if arguments.rows:
        write_rows(folder / "data", arguments.rows)
        works["prepare_examples"] = (arguments.rows, lambda target: prepare(folder / "data", target))
    if arguments.examples:
        write_examples(folder / "examples", arguments.examples)
        models = [write_model(folder / f"{seed}.keras", seed) for seed in range(2)]
        works["evaluate"] = (arguments.examples, lambda target: evaluate(models, folder / "examples", target))
    expected: dict[str, Any] = {}
    base: dict[str, float] = {}
    print(f"{'component':17} {'runner':27} {'workers':>7} {'seconds':>8} {'rows/s':>8} {'x direct':>9}  same result")
    for name, workers, context in chosen(folder, arguments):
        with context as runner_arguments:
            for work, (count, run) in works.items():
                seconds, result = timed(run, folder / f"{work}-{name}-{workers}", runner_arguments)
                expected.setdefault(work, result)
                speed = count / seconds
                base.setdefault(work, speed)
                is_same = result == expected[work]
                print(
                    f"{work:17} {name:27} {workers:7} {seconds:8.1f} {speed:8.0f} {speed / base[work]:9.2f}  "
                    f"{'yes' if is_same else 'NO'}",
                    flush=True,
                )
                yield {"component": work, "runner": name, "workers": workers, "seconds": seconds, "same": is_same}


def timed(run: Callable[[Path], Any], target: Path, arguments: list[str]) -> tuple[float, Any]:
    """Run a component with the arguments of a runner, and return its seconds and its result."""
    from tfopt.data import beam_runner

    start = time.monotonic()
    with beam_runner.runner_arguments(arguments):
        result = run(target)
    return time.monotonic() - start, result


def prepare(data: Path, target: Path) -> Any:
    """Prepare examples and return the digest of all their bytes."""
    from tfopt.components.prepare_examples.component import prepare_examples

    return prepare_examples(data=data, examples=target)["examples"].digest


def evaluate(models: list[Path], examples: Path, target: Path) -> Any:
    """Evaluate the models and return the whole report."""
    from tfopt.components.evaluate import component

    component.evaluate(models[0], models[1:], examples, target, replicates=100)
    return json.loads((target / "evaluation.json").read_text())


def chosen(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[str, int, Context]]:
    """Yield each runner with a context that returns its arguments and ends its cluster; the plain one first."""
    yield "DirectRunner, in memory", 1, contextlib.nullcontext([])
    for runner in arguments.runners:
        for workers in arguments.workers:
            title, start = RUNNERS[runner]
            yield title, workers, start(folder / f"{runner}-{workers}", workers)


def direct(folder: Path, workers: int) -> Context:
    """Return the arguments of the DirectRunner with workers in processes."""
    return contextlib.nullcontext(["--direct_running_mode=multi_processing", f"--direct_num_workers={workers}"])


@contextlib.contextmanager
def dask(folder: Path, workers: int) -> Iterator[list[str]]:
    """Start a Dask cluster of processes with one thread each."""
    import distributed

    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=folder
    ) as cluster:
        yield ["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]


@contextlib.contextmanager
def flink(folder: Path, workers: int) -> Iterator[list[str]]:
    """Start a Flink cluster."""
    from tests.beam_engines import clusters

    with clusters.flink(folder, workers) as cluster:
        yield cluster.arguments


@contextlib.contextmanager
def spark(folder: Path, workers: int) -> Iterator[list[str]]:
    """Start a Spark cluster."""
    from tests.beam_engines import clusters

    with clusters.spark(folder, workers) as cluster:
        yield cluster.arguments


RUNNERS: dict[str, tuple[str, Callable[[Path, int], Context]]] = {
    "direct": ("DirectRunner, processes", direct),
    "dask": ("DaskRunner, local cluster", dask),
    "flink": ("FlinkRunner, cluster", flink),
    "spark": ("SparkRunner, cluster", spark),
}


def write_rows(folder: Path, count: int) -> None:
    """Write rows of eight numbers and a label as CSV files."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for file, indices in enumerate(np.array_split(np.arange(count), FILES)):
        values = generator.normal(size=(len(indices), FEATURES))
        labels = np.array(["low", "middle", "high"])[np.digitize(values.sum(1), [-2, 2])]
        lines = (",".join([*map("{:.4f}".format, row), label]) for row, label in zip(values, labels, strict=True))
        header = ",".join([*(f"x{index}" for index in range(FEATURES)), "label"])
        (folder / f"{file:02}.csv").write_text("\n".join([header, *lines]) + "\n")


def write_examples(folder: Path, count: int) -> None:
    """Write examples of eight numbers and a binary label as gzipped shards."""
    import tensorflow as tf

    generator = np.random.default_rng(1)
    (folder / "Split-eval").mkdir(parents=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    for shard, indices in enumerate(np.array_split(np.arange(count), FILES)):
        values = generator.normal(size=(len(indices), FEATURES)).astype(np.float32)
        labels = (values.sum(1) + generator.normal(size=len(indices)) > 0).astype(int)
        file = folder / "Split-eval" / f"data_tfrecord-{shard:05d}-of-{FILES:05d}.gz"
        with tf.io.TFRecordWriter(str(file), options) as writer:
            for row, label in zip(values, labels, strict=True):
                features = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def write_model(file: Path, seed: int) -> Path:
    """Write a Keras model of two layers; its weights are random, the speed does not depend on them."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(seed)
    x = layers.Input((FEATURES,), name="x")
    keras.Model(x, layers.Dense(1, activation="sigmoid")(layers.Dense(64, activation="relu")(x))).save(file)
    return file


if __name__ == "__main__":
    main()
