"""Cost of orchestration: the DAG against direct calls of its functions, a step's start against TensorFlow's import.

    python benchmarks/overhead.py [--rounds 5] [--json FILE]

The figures are ratios of one run on one machine; absolute times of different machines are not comparable. The DAG folds
a small model, exports it three times and evaluates all five. `benchmark` is left out: its duration is a parameter.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Files, SavedModel
from tfopt.component import Input, Output, component
from tfopt.dag.dag import Dag, StepOutput
from tfopt.dag.tracing import Steps, trace

ROOT = Path(__file__).parents[1]  # the folder from which the step `benchmarks.overhead:only_import` is imported
GOALS = {
    "step / import tensorflow": 1.25,
    "compile retrain, seconds": 3.0,
    "beam / direct": 1.15,
    "local / direct": 1.15,
    "process / direct": 1.15,
}


@component(image="tf")
def only_import(data: Input[Files], out: Output[Files]) -> None:
    """Import TensorFlow, as every TensorFlow step does, and nothing else.

    Args:
        data: Any file.
        out: A marker.
    """
    import tensorflow as tf

    (out.path / "version").write_text(tf.__version__)


def shrink(steps: Steps, model: Input[SavedModel], examples: Input[Examples]) -> None:
    """Fold, export, evaluate."""
    folded = steps.fold_batch_norm(model=model, examples=examples).outputs["folded"]
    exported = [
        steps.export_tflite(model=folded, examples=examples, precision=precision).outputs["exported"]
        for precision in ("float32", "dynamic", "int8")
    ]
    steps.evaluate(baseline=model, candidates=[folded, *exported], examples=examples)


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements; the medians are reported")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
        ratios = start_up(Path(folder), arguments.rounds) | orchestration(Path(folder), arguments.rounds)
    print(f"\n{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()}")
    for name, value in ratios.items():
        print(f"{name:26} {value:5.2f}   goal < {GOALS[name]:.2f}   {'met' if value < GOALS[name] else 'MISSED'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(ratios, indent=1))


def start_up(folder: Path, rounds: int) -> dict[str, float]:
    """Time an import, a step that only imports, and a compilation, in turns, each in a new process."""
    data = folder / "data"
    data.write_text("x")
    seconds: dict[str, list[float]] = {"bare": [], "step": [], "compile": []}
    for index in range(rounds + 1):
        step = ["benchmarks.overhead:only_import", "--data", str(data), "--out", f"{folder}/out{index}"]
        turns = {
            "bare": ["-c", "import tensorflow"],
            "step": ["-m", "tfopt.run", *step],
            "compile": ["-m", "tfopt.run", "compile", "retrain", "-o", f"{folder}/retrain.yaml"],
        }
        for name, arguments in turns.items():
            command = [sys.executable, *arguments]
            duration = _timed(
                lambda command=command: subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            )
            if index:  # the first round fills the disk cache
                seconds[name].append(duration)
    median = {name: statistics.median(durations) for name, durations in seconds.items()}
    print({name: f"{value:.2f} s" for name, value in median.items()}, flush=True)
    return {"step / import tensorflow": median["step"] / median["bare"], "compile retrain, seconds": median["compile"]}


def orchestration(folder: Path, rounds: int) -> dict[str, float]:
    """Time the same DAG with direct calls, with both runners of TFX and without TFX, in turns, without imports."""
    from tfopt.process_engine import runner as process_runner
    from tfopt.tfx import runner

    dag, values = trace(shrink), _digits(folder)
    seconds: dict[str, list[float]] = {"direct": [], "beam": [], "local": [], "process": []}
    for index in range(rounds + 1):
        turns = {
            "direct": lambda root: run_directly(dag, values, root),
            "beam": lambda root: runner.run(dag, values, root),
            "local": lambda root: runner.run(dag, values, root, engine="local"),
            "process": lambda root: process_runner.run(dag, values, root),
        }
        for name, run in turns.items():
            duration = _timed(lambda run=run, name=name, index=index: run(folder / f"{name}{index}"))
            if index:  # the first round does the imports
                seconds[name].append(duration)
    median = {name: statistics.median(durations) for name, durations in seconds.items()}
    print({name: f"{value:.1f} s" for name, value in median.items()}, flush=True)
    return {f"{name} / direct": median[name] / median["direct"] for name in median if name != "direct"}


def run_directly(dag: Dag, values: dict[str, Any], root: Path) -> None:
    """Call the DAG's functions one after another, without an engine."""
    parameters = dag.values(values)

    def path(wire: Any) -> Any:
        if isinstance(wire, tuple):
            return [path(item) for item in wire]
        return root / wire.step / wire.output if isinstance(wire, StepOutput) else parameters[wire.name]

    for step in dag.with_sources(values).steps.values():
        inputs = {name: path(wire) for name, wire in step.inputs.items()}
        outputs = {name: root / step.id / name for name in step.component.outputs}
        step.component(**inputs, **outputs, **step.resolve(parameters))


def _digits(folder: Path) -> dict[str, Any]:
    """Write examples of scikit-learn's digits and a small convolutional network, trained briefly."""
    import keras
    import numpy as np
    from sklearn.datasets import load_digits

    from tfopt import keras_models
    from tfopt.components.prepare_examples.component import prepare_examples

    images, labels = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", image=images.astype(np.float32), label=labels)
    prepare_examples(data=folder / "digits.npz", examples=folder / "examples", label="label")
    image = keras.Input((64,), name="image")
    flow = keras.layers.Reshape((8, 8, 1))(image)
    flow = keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3, use_bias=False)(flow))
    flow = keras.layers.Flatten()(keras.layers.ReLU()(flow))
    model = keras.Model(image, keras.layers.Dense(10, activation="softmax")(flow))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(images, labels, epochs=3, verbose=0)
    keras_models.save(model, folder / "model")
    return {"model": folder / "model", "examples": folder / "examples"}


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
