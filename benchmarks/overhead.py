"""What orchestration costs: the DAG against the same functions called directly, a step's start against TensorFlow's.

    python benchmarks/overhead.py [--json FILE]

Goals: the DAG under 1.15x after imports, a step's start under 1.25x of ``import tensorflow``. These are ratios of
one run on one machine; absolute times of different machines do not compare.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Files
from tfopt.component import Input, Output, component
from tfopt.dag import Dag, Reference
from tfopt.trace import load

GOALS = {"beam / direct": 1.15, "local / direct": 1.15, "step / import tensorflow": 1.25}


@component(image="tf")
def only_import(data: Input[Files], out: Output[Files]) -> None:
    """Do what every TensorFlow step does first, and nothing else.

    Args:
        data: Any file.
        out: A marker.
    """
    import tensorflow as tf

    (out.path / "version").write_text(tf.__version__)


def main() -> None:
    """Measure, print a table, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the start-up comparison")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
        ratios = start_up(Path(folder), given.rounds) | orchestration(Path(folder))
    print(f"\n{platform.processor() or platform.machine()}, {platform.python_version()}, Linux {platform.release()}")
    for name, ratio in ratios.items():
        goal = GOALS[name]
        print(f"{name:26} {ratio:5.2f}x   goal < {goal:.2f}x   {'met' if ratio < goal else 'MISSED'}")
    if given.json:
        given.json.write_text(json.dumps(ratios, indent=1))


def start_up(folder: Path, rounds: int) -> dict[str, float]:
    """Alternate a bare import with a whole step in a fresh process, and take the ratio of the medians."""
    data = folder / "data"
    data.write_text("x")
    seconds: dict[str, list[float]] = {"bare": [], "step": []}
    for index in range(rounds + 1):
        step = ["-m", "tfopt.run", "benchmarks.overhead:only_import", "--data", data, "--out", folder / f"out{index}"]
        for name, words in (("bare", ["-c", "import tensorflow"]), ("step", step)):
            took = _timed(lambda words=words: subprocess.run([sys.executable, *words], check=True, capture_output=True))
            if index:  # the first round fills the disk cache
                seconds[name].append(took)
                print(f"start-up {name}: {took:.2f} s", flush=True)
    return {"step / import tensorflow": statistics.median(seconds["step"]) / statistics.median(seconds["bare"])}


def orchestration(folder: Path) -> dict[str, float]:
    """Run `optimize` on real digits by hand, on Beam and with the local runner, imports done before."""
    from tfopt import engine

    dag = load("optimize")
    values = {**_digits(folder), "objective": "size"}
    seconds = {}
    direct(dag, values, folder / "warm")  # imports, kernels, disk cache
    engine._runner("beam"), engine._runner("local")
    for name, run in (
        ("direct", lambda: direct(dag, values | {"destination": str(folder / "p1")}, folder / "direct")),
        ("beam", lambda: engine.run(dag, values | {"destination": str(folder / "p2")}, folder / "beam")),
        (
            "local",
            lambda: engine.run(dag, values | {"destination": str(folder / "p3")}, folder / "local", engine="local"),
        ),
    ):
        seconds[name] = _timed(run)
        print(f"optimize, {name}: {seconds[name]:.1f} s", flush=True)
    return {f"{name} / direct": seconds[name] / seconds["direct"] for name in ("beam", "local")}


def direct(dag: Dag, values: dict[str, Any], root: Path) -> None:
    """Call the DAG's functions one after another, with no engine at all."""
    known = dag.values({"destination": str(root / "pushed"), **values})

    def path(wire: Any) -> Any:
        if isinstance(wire, tuple):
            return [path(item) for item in wire]
        return root / wire.step / wire.output if isinstance(wire, Reference) else known[wire.name]

    for step in dag.steps.values():
        inputs = {name: path(wire) for name, wire in step.inputs.items()}
        outputs = {name: root / step.id / name for name in step.component.outputs}
        step.component(**inputs, **outputs, **dag.resolve(step, known))


def _digits(folder: Path) -> dict[str, Any]:
    """Examples of scikit-learn's digits, and a small convolution network trained on them for a moment."""
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
    return {"model": folder / "model", "examples": Examples(folder / "examples")}


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
