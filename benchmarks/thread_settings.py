"""Measure settings of threads: time and processor time of a call for each number of threads of each runtime.

    python benchmarks/thread_settings.py FILE … [--batches 1 32] [--rounds 10] [--seconds 0.5] [--cores 2]

A file is a ``.tflite``, ``.onnx`` or ``.xml``, the folder of a SavedModel, or an output of a step. Each setting has a
process, and the processes of a file take turns; a round is a turn of each. Ratios are those to one thread for each
core in the same rounds, with 99 % intervals (tfopt.measurement.speedup). Threads that wait for work spin in ONNX
Runtime and OpenVINO by default: the processor time shows it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

DEFAULT, SINGLE = "one thread a core", "one thread"
NO_SPINNING, THROUGHPUT = "one a core, no spinning", "one a core, throughput hint"
SETTINGS = {
    "tflite": (DEFAULT, SINGLE),
    "onnx": (DEFAULT, SINGLE, NO_SPINNING),
    "openvino": (DEFAULT, SINGLE, THROUGHPUT),
    "saved_model": (DEFAULT, SINGLE),
}


def main() -> None:
    """Measure each file in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5, help="time of a setting in a round")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--serve", metavar="SETTING", help=argparse.SUPPRESS)  # in the process of a setting
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.files[0], arguments.serve, arguments.cores, arguments.batches, arguments.seconds)
        return
    print("| file | batch | setting | ms | CPU ms | speed against one thread a core |\n|---|---|---|---|---|---|")
    for file in arguments.files:
        rounds = measure(file, arguments)
        for batch in map(str, arguments.batches):
            times = {setting: np.array([one[batch] for one in rows]) for setting, rows in rounds.items()}
            for setting, rows in times.items():
                wall, processor = np.median(rows, axis=0) * 1e3
                ratio = compare(times[DEFAULT][:, 0], rows[:, 0]) if setting != DEFAULT else ""
                name = f"{file.absolute().parent.name}/{file.name}"
                print(f"| {name} | {batch} | {setting} | {wall:.3g} | {processor:.3g} | {ratio} |", flush=True)


def measure(file: Path, arguments: argparse.Namespace) -> Mapping[str, list[dict[str, list[float]]]]:
    """Return the seconds and processor seconds of a call by setting, round and batch size."""
    from tfopt.artifacts import Model

    processes = {}
    for setting in SETTINGS[Model.open(file).format]:
        options = ["--cores", str(arguments.cores), "--seconds", str(arguments.seconds / len(arguments.batches))]
        options += ["--batches", *map(str, arguments.batches), "--serve", setting]
        command = [sys.executable, __file__, str(file), *options]
        processes[setting] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rounds: dict[str, list[dict[str, list[float]]]] = {setting: [] for setting in processes}
    for number in range(-1, arguments.rounds):  # the first round warms up
        for setting, process in processes.items():
            assert process.stdin
            assert process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            if not (line := process.stdout.readline()):
                sys.exit(f"{file}, {setting}: the process ended, see above")
            if number >= 0:
                rounds[setting].append(json.loads(line))
    for process in processes.values():
        process.communicate()
    return rounds


def serve(file: Path, setting: str, cores: int, batches: list[int], seconds: float) -> None:
    """Load the file, and print the time of a call as JSON for each line of the input."""
    from tfopt import runtimes
    from tfopt.artifacts import Model

    change_settings(setting)
    answers, sys.stdout = sys.stdout, sys.stderr  # runtimes print, too
    with runtimes.load(Model.open(file), threads=1 if setting == SINGLE else cores) as runtime:
        feeds = {batch: random_feeds(runtime.inputs, batch) for batch in batches}
        for _ in sys.stdin:
            row = {batch: call_seconds(runtime, feed, seconds) for batch, feed in feeds.items()}
            print(json.dumps(row), file=answers, flush=True)


def change_settings(setting: str) -> None:
    """Change what tfopt's runtimes do not take as a parameter."""
    if setting == NO_SPINNING:
        import onnxruntime

        original = onnxruntime.SessionOptions

        def without_spinning() -> Any:
            options = original()
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            return options

        onnxruntime.SessionOptions = without_spinning
    if setting == THROUGHPUT:
        from tfopt.runtimes import openvino

        openvino.SETTINGS["PERFORMANCE_HINT"] = "THROUGHPUT"
        del openvino.SETTINGS["NUM_STREAMS"]


def random_feeds(specs: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """Return numbers from 0 to 1 for float inputs and zeros for the others; open sizes but the first are 1."""
    feeds = {}
    for name, spec in specs.items():
        shape = [batch if axis == 0 else size or 1 for axis, size in enumerate(spec.shape)]
        random = np.random.default_rng(0).random(shape)
        feeds[name] = random.astype(spec.dtype) if spec.dtype.startswith("float") else np.zeros(shape, spec.dtype)
    return feeds


def call_seconds(runtime: Any, feeds: Mapping[str, Any], seconds: float) -> list[float]:
    """Return the mean time and processor time of a call, all threads together, over some seconds."""
    calls, processor, start = 0, time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        runtime.call(feeds)
        calls += 1
    return [elapsed / calls, (time.process_time() - processor) / calls]


def compare(default: Any, other: Any) -> str:
    """Return the ratio of speeds with its interval and verdict."""
    from tfopt.measurement.speedup import speedup

    estimate = speedup(default, other, min_effect=0.03)
    return f"{estimate.value:.2f}x ({estimate.low:.2f} to {estimate.high:.2f}), {estimate.verdict}"


if __name__ == "__main__":
    main()
