"""How often `benchmark` is wrong: the same model twice, and one that is 5 % slower, over and over.

    python benchmarks/verdicts.py [--trials 200] [--seconds 2.2] [--rounds 60] [--load 2] [--json F]
    python benchmarks/verdicts.py --format saved_model [--apart]

A trial measures three models as a pipeline would: a stack of 20 equal dense layers, its copy, and the same stack with a
21st layer, which is 5 % more work. "faster" or "slower" for the copy is a false verdict; anything but "slower" for the
longer stack is a miss. ``--load 2`` keeps two other processes busy all the while. ``--apart`` forks the copy from a
process of its own, as a model of another runtime is. The file gets every trial as it ends, and a second run goes on
from there. Goals: at most 2 % false verdicts of 200, and at least 90 % of the slowdowns found.
"""

import argparse
import contextlib
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from kept import begun, keep

LAYERS, WIDTH = 20, 256


def main() -> None:
    """Run the trials and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.2, help="how long each model is measured in a trial")
    parser.add_argument("--rounds", type=int, default=60, help="how many processes each model has in a trial")
    parser.add_argument("--format", choices=["tflite", "saved_model"], default="tflite")
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the benchmark")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--apart", action="store_true", help="give the copy variables of its own, which a file has not")
    given = parser.parse_args()
    if given.apart and given.format != "saved_model":
        parser.error("--apart takes --format saved_model")
    settings = {name: getattr(given, name) for name in ("format", "apart", "load", "seconds", "rounds")}
    result = begun(given.json, settings, "trials")
    trials = result["trials"]
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder, busy(given.load):
        models = write_models(Path(folder), given.format, apart=given.apart)
        for number in range(len(trials), given.trials):
            print(f"\rtrial {number + 1} of {given.trials}", end="", flush=True)
            trials.append(trial(models, Path(folder), given.seconds, given.rounds, number))
            keep(given.json, result)
    print_result(result)


def trial(models: list[Path], folder: Path, seconds: float, rounds: int, number: int) -> dict[str, Any]:
    """One benchmark, as `tfopt benchmark` runs it, with a seed of its own."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark import component

    with tempfile.TemporaryDirectory(dir=folder) as target:
        component.benchmark(
            models[0], models[1:], f"{target}/benchmark", batch_sizes=["1"], seconds=seconds, rounds=rounds, seed=number
        )
        rows = Benchmark(f"{target}/benchmark").read()["models"][1:]
    return {name: row["speedup"]["1"] for name, row in zip(("same", "slower"), rows, strict=True)}


def print_result(result: dict[str, Any]) -> None:
    """Count the verdicts, with the part of them that is wrong."""
    trials = result["trials"]
    each = f"{result['seconds']:g} s and {result['rounds']} rounds a model"
    kind = f"{result['format']}{', the copy apart' if result['apart'] else ''}"
    print(f"\n{len(trials)} trials, {kind}, {each}, {result['load']} busy processes")
    print(f"{os.cpu_count()} cores, {cpu_model()}")
    for name, right in (("same", "within noise"), ("slower", "slower")):
        found = Counter(one[name]["verdict"] for one in trials)
        ratio = np.median([one[name]["value"] for one in trials])
        width = np.median([one[name]["high"] / one[name]["low"] - 1 for one in trials])
        spread = np.std([one[name]["value"] for one in trials])
        said = ", ".join(f"{verdict} {count}" for verdict, count in found.most_common())
        print(
            f"{name:7} {100 * found[right] / len(trials):5.1f} % right ({said}); "
            f"median speedup {ratio:.3f} with a spread (sd) of {100 * spread:.1f} %, "
            f"median width of the interval {100 * width:.1f} %"
        )


def write_models(folder: Path, format: str, *, apart: bool = False) -> list[Path]:
    """Write the stack, its copy, and the stack with a layer more."""
    import tensorflow as tf

    from tfopt.runtimes import environment

    rng = np.random.default_rng(0)
    written = []
    for name, layers in (("model", LAYERS), ("copy", LAYERS), ("longer", LAYERS + 1)):
        module = tf.Module()
        weights = [tf.constant(rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)), tf.float32) for _ in range(layers)]
        module.f = tf.function(stack(weights), input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        tf.saved_model.save(module, str(folder / name), signatures=module.f.get_concrete_function())
        written.append(folder / name)
        if format == "tflite":
            written[-1] = folder / f"{name}.tflite"
            written[-1].write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder / name)).convert())
    if apart:
        environment.write(folder / "copy", {"TFOPT_COPY": "1"})
    return written


def stack(weights: list[Any]) -> Callable[[Any], dict[str, Any]]:
    """Dense layers of these weights, each with a ReLU."""
    import tensorflow as tf

    def run(x: Any) -> dict[str, Any]:
        for weight in weights:
            x = tf.nn.relu(x @ weight)
        return {"y": x}

    return run


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep some cores busy, as other people's work would."""
    rivals = [multiprocessing.get_context("spawn").Process(target=never_rest, daemon=True) for _ in range(processes)]
    for rival in rivals:
        rival.start()
    try:
        yield
    finally:
        for rival in rivals:
            rival.kill()


def never_rest() -> None:
    """Move memory about and compute, for ever."""
    numbers = np.random.default_rng(0).normal(size=1 << 20)
    while True:
        numbers = np.sqrt(np.abs(numbers[::-1])) + 1e-3


def cpu_model() -> str:
    """The processor's name, as Linux gives it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
