"""Error rate of `benchmark`: false verdicts on a copy of a model, and missed slowdowns of 5 %.

    python benchmarks/verdicts.py [--trials 200] [--seconds 2.2] [--rounds 60] [--load 2] [--json F]
    python benchmarks/verdicts.py --format saved_model [--apart]
    python benchmarks/verdicts.py --loaded [--trials 100] [--loads 0 1 2 4 8] [--nice -20]

A trial measures three models as a pipeline does: a stack of 20 equal dense layers, its copy, and the same stack with a
21st layer, which is 5 % more work. "faster" or "slower" for the copy is a false verdict; any other verdict than
"slower" for the longer stack is a miss. ``--load 2`` runs two other busy processes at the same time. ``--apart`` forks
the copy from another process, as a model of another runtime is. Every finished trial is stored in the file, and a
second run continues from there. Goals: at most 2 % false verdicts in 200 trials, and at least 90 % of the slowdowns
detected.

``--loaded`` runs that many trials with each number of busy processes, which start and end at random, and also measures
a small model and one that needs the memory bandwidth. The reference of each ratio is its median in the trials without
busy processes that are not unstable. Goals: in 99 % of the comparisons the reference is inside of the interval or the
verdict is "unstable"; at most 2 % false verdicts on the copy; 90 % of the slowdowns detected without busy processes.
"""

import argparse
import contextlib
import functools
import math
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from stored_results import load_results, save_results

LAYERS, WIDTH = 20, 256
LARGE_WIDTH = 1600  # eight layers are 82 MB, more than a cache holds
BUSY_SECONDS = 2.0  # mean time that a process of a changing load is busy, and idle


def main() -> None:
    """Run the trials and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.2, help="measuring time of each model in a trial")
    parser.add_argument("--rounds", type=int, default=60, help="number of processes of each model in a trial")
    parser.add_argument("--format", choices=["tflite", "saved_model"], default="tflite")
    parser.add_argument("--load", type=int, default=0, help="number of busy processes next to the benchmark")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--apart", action="store_true", help="give the copy other environment variables (only for a SavedModel)"
    )
    parser.add_argument("--loaded", action="store_true", help="measure on a machine with a changing load")
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 1, 2, 4, 8], help="numbers of busy processes")
    parser.add_argument(
        "--nice", type=int, default=0, help="of the busy processes; -20 takes half of the time of the models' cores"
    )
    arguments = parser.parse_args()
    if arguments.loaded:
        run_loaded(arguments)
        return
    if arguments.apart and arguments.format != "saved_model":
        parser.error("--apart takes --format saved_model")
    settings = {name: getattr(arguments, name) for name in ("format", "apart", "load", "seconds", "rounds")}
    result = load_results(arguments.json, settings, "trials")
    trials = result["trials"]
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder, busy(arguments.load):
        models = write_models(Path(folder), arguments.format, apart=arguments.apart)
        for number in range(len(trials), arguments.trials):
            print(f"\rtrial {number + 1} of {arguments.trials}", end="", flush=True)
            trials.append(trial(models, Path(folder), arguments.seconds, arguments.rounds, number))
            save_results(arguments.json, result)
    print_result(result)


def trial(models: list[Path], folder: Path, seconds: float, rounds: int, number: int) -> dict[str, Any]:
    """Run the `benchmark` component with a seed and return the speedups."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark.component import benchmark

    with tempfile.TemporaryDirectory(dir=folder) as target:
        artifact = benchmark(
            models[0], models[1:], f"{target}/benchmark", batch_sizes=["1"], seconds=seconds, rounds=rounds, seed=number
        )["benchmark"]
        candidates = Benchmark(artifact.path).load().models[1:]
    names = ("same", "slower", "small", "large")[: len(candidates)]
    return {name: asdict(model.speedup["1"]) for name, model in zip(names, candidates, strict=True)}


def run_loaded(arguments: argparse.Namespace) -> None:
    """Run the trials with each number of busy processes, in turns, and print how many comparisons hold."""
    settings = {name: getattr(arguments, name) for name in ("loaded", "nice", "seconds", "rounds")}
    result = load_results(arguments.json, settings, "trials")
    trials = result["trials"]
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
        models = write_models(Path(folder), "tflite", others=True)
        for number in range(len(trials), arguments.trials * len(arguments.loads)):
            load = arguments.loads[number % len(arguments.loads)]
            print(f"\rtrial {number + 1} of {arguments.trials * len(arguments.loads)}", end="", flush=True)
            with busy(load, functools.partial(compute_at_random, arguments.nice)):
                measured = trial(models, Path(folder), arguments.seconds, arguments.rounds, number)
            trials.append({"load": load, **measured})
            save_results(arguments.json, result)
    print(
        f"\n{arguments.seconds:g} s and {arguments.rounds} rounds a model, busy processes of niceness {arguments.nice}"
    )
    print(describe_machine())
    print("\n".join(describe_loaded(trials)))


def describe_loaded(trials: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each number of busy processes: the shares of comparisons that hold, are false, or are missed."""
    names = [name for name in trials[0] if name != "load"]
    quiet = {
        name: [one[name]["value"] for one in trials if not one["load"] and one[name]["verdict"] != "unstable"]
        for name in names
    }
    reference = {name: float(np.median(values)) for name, values in quiet.items() if values}
    yield "quiet ratios: " + (", ".join(f"{name} {value:.3f}" for name, value in reference.items()) or "not measured")
    for load in sorted({one["load"] for one in trials}):
        rows = [one for one in trials if one["load"] == load]
        compared = [one[name] for one in rows for name in names]
        unstable = sum(one["verdict"] == "unstable" for one in compared)
        wrong = sum(
            one[name]["verdict"] != "unstable" and not one[name]["low"] <= reference[name] <= one[name]["high"]
            for one in rows
            for name in reference
        )
        false = sum(one["same"]["verdict"] in ("faster", "slower") for one in rows)
        verdicts = Counter(one["slower"]["verdict"] for one in rows)
        without = sum(one[name]["verdict"] != "unstable" for one in rows for name in names if name not in reference)
        judged = len(rows) - verdicts["unstable"]
        yield (
            f"{load} busy: {len(compared) - wrong - without} of {len(compared)} comparisons hold ({unstable} unstable, "
            f"{without} without a reference), "
            f"{false} of {len(rows)} false verdicts on the copy, 5 % found in {verdicts['slower']} of {judged} compared"
        )


def describe_machine() -> str:
    """Return the cores and the name of the processor."""
    from tfopt.measurement.machine_fingerprint import cpu_facts

    return f"{os.cpu_count()} cores, {cpu_facts()['model']}"


def print_result(result: dict[str, Any]) -> None:
    """Print the number of each verdict and the share of correct ones."""
    trials = result["trials"]
    each = f"{result['seconds']:g} s and {result['rounds']} rounds a model"
    kind = f"{result['format']}{', the copy apart' if result['apart'] else ''}"
    print(f"\n{len(trials)} trials, {kind}, {each}, {result['load']} busy processes")
    print(describe_machine())
    for name, correct in (("same", "within noise"), ("slower", "slower")):
        verdicts = Counter(one[name]["verdict"] for one in trials)
        ratio = np.median([one[name]["value"] for one in trials])
        width = np.median([one[name]["high"] / one[name]["low"] - 1 for one in trials])
        spread = np.std([one[name]["value"] for one in trials])
        counts = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
        print(
            f"{name:7} {100 * verdicts[correct] / len(trials):5.1f} % right ({counts}); "
            f"median speedup {ratio:.3f} with a spread (sd) of {100 * spread:.1f} %, "
            f"median width of the interval {100 * width:.1f} %"
        )


def write_models(folder: Path, format: str, *, apart: bool = False, others: bool = False) -> list[Path]:
    """Write the stack, its copy, and the stack with another layer; with ``others``, also a small and a large one."""
    import tensorflow as tf

    from tfopt.runtimes import environment

    rng = np.random.default_rng(0)
    written = []
    sizes = [("model", LAYERS, WIDTH), ("copy", LAYERS, WIDTH), ("longer", LAYERS + 1, WIDTH)]
    sizes += [("small", 2, WIDTH), ("large", 8, LARGE_WIDTH)] if others else []
    for name, layers, width in sizes:
        module = tf.Module()
        weights = [tf.constant(rng.normal(0, width**-0.5, (width, width)), tf.float32) for _ in range(layers)]
        module.f = tf.function(stack(weights), input_signature=[tf.TensorSpec([None, width], name="x")])
        tf.saved_model.save(module, str(folder / name), signatures=module.f.get_concrete_function())
        written.append(folder / name)
        if format == "tflite":
            written[-1] = folder / f"{name}.tflite"
            written[-1].write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder / name)).convert())
    if apart:
        environment.add_variables(folder / "copy", {"TFOPT_COPY": "1"})
    return written


def stack(weights: list[Any]) -> Callable[[Any], dict[str, Any]]:
    """Return a function of dense layers with these weights, each with a ReLU."""
    import tensorflow as tf

    def run(x: Any) -> dict[str, Any]:
        for weight in weights:
            x = tf.nn.relu(x @ weight)
        return {"y": x}

    return run


@contextlib.contextmanager
def busy(processes: int, work: Callable[[], None] | None = None) -> Iterator[None]:
    """Run processes with this work, by default `compute_forever`, until the context ends."""
    workers = [
        multiprocessing.get_context("spawn").Process(target=work or compute_forever, daemon=True)
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()


def compute_forever() -> None:
    """Use memory bandwidth and a core until the process is killed."""
    compute(math.inf)


def compute_at_random(nice: int) -> None:
    """Compute and sleep in turns of random length until the process is killed, or its parent has ended."""
    parent = os.getppid()
    if nice:
        os.setsid()  # a session of its own, whose group the scheduler weighs against that of the models
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if (group := Path("/proc/self/autogroup")).exists():
            group.write_text(str(nice))
    while os.getppid() == parent:
        compute(random.expovariate(1 / BUSY_SECONDS))
        time.sleep(random.expovariate(1 / BUSY_SECONDS))


def compute(seconds: float) -> None:
    """Use memory bandwidth and a core for some time."""
    numbers, end = np.random.default_rng(0).normal(size=1 << 20), time.monotonic() + seconds
    while time.monotonic() < end:
        numbers = np.sqrt(np.abs(numbers[::-1])) + 1e-3


if __name__ == "__main__":
    main()
