"""Cost of each step of the pipeline `optimize`: time, CPU time and peak memory, on models of real size.

    python benchmarks/cost.py [--models MobileNetV2 ResNet50] [--side 224] [--records 256] [--steps REGEX]
                              [--json F] [--folder F]

The steps run one after another in one process for each model, as `tfopt run optimize --engine process --jobs 1` runs
them, with their child processes. Time includes waiting; CPU time is that of the process and all of its children, so it
hardly depends on other work on the machine. Memory is the proportional set size (PSS) of the whole process tree,
looked at ten times a second: pages that processes share count once. Weights are random; batch-norm statistics are
changed, so that there is something to fold. The transformer has the size of a BERT encoder with 4 layers (width 768,
12 heads, 128 tokens).

A killed measurement is resumed: ``--json`` is written after each model, and models that it has are not measured again.
With ``--folder``, steps whose cost was measured there are not run again either.
"""

import argparse
import contextlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

MODELS = ("MobileNetV2", "EfficientNetB0", "ResNet50", "transformer")
WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 30_522, 128, 768, 12, 4  # of the transformer
CLASSES = 10
FIGURES = "costs.json"  # in the folder of a model
# In a process of its own, so that the memory that training libraries keep is not attributed to the steps.
WRITE_SOURCES = """
import pathlib, sys, cost
name, folder, side, records = sys.argv[1:]
cost.write_sources(name, pathlib.Path(folder), int(side), int(records))
"""
INTERVAL_S = 0.1  # between two samples of the memory
PEAK = 1.01  # of the largest sum of resident sizes so far
GIB = 1 << 30


def main() -> None:
    """Measure each model in a new process and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--side", type=int, default=224, help="height and width of the images")
    parser.add_argument("--records", type=int, default=256, help="number of examples of each split")
    parser.add_argument("--steps", default="", help="show the steps whose names match; the others run as well")
    parser.add_argument("--json", type=Path, help="file of the figures; models that it already has are not measured")
    parser.add_argument("--folder", type=Path, help="keep models and figures here, and resume a measurement from it")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # run in the process of one model
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.models[0], arguments.folder, arguments.side, arguments.records)
        return
    costs = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as scratch:
        for name in [name for name in arguments.models if name not in costs]:
            folder = (arguments.folder or Path(scratch)) / name
            words = ["--models", name, "--side", str(arguments.side), "--records", str(arguments.records)]
            subprocess.run([sys.executable, __file__, *words, "--one", "--folder", str(folder.absolute())], check=True)
            costs[name] = json.loads((folder / FIGURES).read_text())
            if arguments.json:
                arguments.json.write_text(json.dumps(costs, indent=1) + "\n")
            if not arguments.folder:
                shutil.rmtree(folder)
    print_table({name: costs[name] for name in arguments.models}, arguments.steps)


def print_table(costs: Mapping[str, Mapping[str, Mapping[str, float]]], pattern: str) -> None:
    """Print a row for each step, with seconds, CPU seconds and GiB of each model."""
    steps = [step for step in next(iter(costs.values())) if re.search(pattern, step)]
    print("| step | " + " | ".join(f"{name}: s | CPU s | GiB" for name in costs) + " |")
    print("|---" * (1 + 3 * len(costs)) + "|")
    for step in steps:
        cells = [f"{costs[name][step][key]:.1f}" for name in costs for key in ("seconds", "cpu_seconds", "gib")]
        print(f"| {step} | " + " | ".join(cells) + " |")
    totals = []
    for cost in costs.values():
        rows = [cost[step] for step in steps]
        totals += [f"{sum(row[key] for row in rows):.0f}" for key in ("seconds", "cpu_seconds")]
        totals.append(f"{max(row['gib'] for row in rows):.1f}")
    print("| all, and the largest | " + " | ".join(totals) + " |")


def measure(name: str, folder: Path, side: int, records: int) -> None:
    """Run the steps of `optimize` on a model, and write the cost of each to the folder after each step."""
    from tfopt.dag.tracing import trace
    from tfopt.pipelines.optimize import optimize
    from tfopt.processes.preloaded_processes import preloading

    if not (folder / FIGURES).exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a killed measurement
        arguments = (name, str(folder), str(side), str(records))
        subprocess.run([sys.executable, "-c", WRITE_SOURCES, *arguments], check=True, cwd=Path(__file__).parent)
        (folder / FIGURES).write_text("{}\n")
    costs = json.loads((folder / FIGURES).read_text())
    logging.basicConfig(filename=folder / "log.txt", format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    with preloading(is_run=True):
        dag = trace(optimize).with_sources({})
        values = {"model": folder / "model", "examples": folder / "examples", "destination": str(folder / "pushed")}
        parameters = dag.values({**values, "label": "label", "seconds": 2.0})
        for step in [step for step in dag.steps.values() if step.id not in costs]:
            inputs = {name: _path(wire, folder, parameters) for name, wire in step.inputs.items()}
            outputs = {output: folder / step.id / output for output in step.component.outputs}
            shutil.rmtree(folder / step.id, ignore_errors=True)  # of a killed measurement
            with measured() as cost:
                step.component(**inputs, **outputs, **step.resolve(parameters))
            costs[step.id] = cost
            (folder / FIGURES).write_text(json.dumps(costs, indent=1) + "\n")
            print(f"{name}: {step.id}: {cost}", file=sys.stderr, flush=True)


def write_sources(name: str, folder: Path, side: int, records: int) -> None:
    """Write the model and the examples."""
    write_model(name, folder / "model", side)
    write_examples(folder / "model", folder / "examples", records)


@contextlib.contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Yield a dictionary that has the cost of the block at its end."""
    cost: dict[str, float] = {"gib": 0.0}
    ended = threading.Event()

    def sample() -> None:
        largest = 0
        while not ended.wait(INTERVAL_S):
            # Counting shared pages takes a tenth of a second for some gigabytes: only at a peak of the resident sizes.
            if (resident := sum(tree_resident())) > PEAK * largest:
                largest = max(resident, largest)
                cost["gib"] = max(cost["gib"], tree_memory() / GIB)

    sampler = threading.Thread(target=sample, daemon=True)
    start, cpu = time.perf_counter(), tree_cpu_seconds()
    sampler.start()
    try:
        yield cost
    finally:
        ended.set()
        sampler.join()
        cost["seconds"] = time.perf_counter() - start
        cost["cpu_seconds"] = tree_cpu_seconds() - cpu


def tree_resident() -> Iterator[int]:
    """Yield the resident size of this process and each of its children, in bytes."""
    import psutil

    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            yield process.memory_info().rss


def tree_memory() -> int:
    """Return the proportional set size of this process and its children, in bytes."""
    import psutil

    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total += 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return total


def tree_cpu_seconds() -> float:
    """Return the CPU time of this process, its running children, and all that have ended and were waited for."""
    import psutil

    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # user, system, and those of children that have ended
    return total


def _path(wire: Any, folder: Path, parameters: Mapping[str, Any]) -> Any:
    from tfopt.dag.dag import StepOutput

    if isinstance(wire, tuple):
        return [_path(item, folder, parameters) for item in wire]
    return folder / wire.step / wire.output if isinstance(wire, StepOutput) else parameters[wire.name]


def write_model(name: str, folder: Path, side: int) -> None:
    """Write a backbone as graph.py does, or a transformer encoder for classification."""
    if name != "transformer":
        from graph import export

        export(name, "keras", folder, side)
        return
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    flow = layers.Embedding(WORDS, WIDTH)(ids)
    for _ in range(BLOCKS):
        flow = layers.LayerNormalization()(flow + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(flow, flow))
        wide = layers.Dense(4 * WIDTH, activation="gelu")(flow)
        flow = layers.LayerNormalization()(flow + layers.Dense(WIDTH)(wide))
    scores = layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(flow))
    keras.Model(ids, scores).export(str(folder), verbose=False)


def write_examples(model: Path, folder: Path, records: int) -> None:
    """Write random records with a label, that fit the model's input."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import SavedModel

    with runtimes.load(SavedModel(model)) as plain:
        ((name, spec),) = plain.inputs.items()
    generator = np.random.default_rng(0)
    for split in ("train", "eval"):
        file = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001"
        file.parent.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(file)) as writer:
            for _ in range(records):
                shape = [size or 1 for size in spec.shape[1:]]
                if spec.dtype == "int32":
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=generator.integers(0, WORDS, shape)))
                else:
                    pixels = generator.random(shape, np.float32).ravel()
                    feature = tf.train.Feature(float_list=tf.train.FloatList(value=pixels))
                label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(generator.integers(CLASSES))]))
                features = tf.train.Features(feature={name: feature, "label": label})
                writer.write(tf.train.Example(features=features).SerializeToString())


if __name__ == "__main__":
    main()
