"""Measure the gain of input code, XLA, 16 bits and threads in training: steps per second, with a verdict each.

    python benchmarks/training.py [--data mnist flights] [--seconds 8] [--rounds 8] [--folder FOLDER]

Each setting trains the same network on the same examples in its own process, interleaved in turns of a second, in
another random order in each round. `generator` and `one by one` are naive input code (`benchmarks/naive.py`); `tuned`
is the pipeline of `train` with its defaults. A setting with + is `tuned` with only that change; the last line has all
of them. Ratios are of the time of a step, the median over the rounds with the 99 % interval and the verdict of
`benchmark`; relative to `generator` and to `tuned`. The second table is of batches alone, without training.

XLA does not guarantee the same sums each time, so it is compared without that guarantee (`any order of sums`). It
compiles whole steps, or nothing if a layer forbids it; `clusters` are parts that TensorFlow chooses itself. A setting
that is not possible is reported, and left out of the last line. With --folder the examples are stored there, and are
not prepared again.
"""

import argparse
import contextlib
import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import DATA, DOCS, Data

from tfopt.component import find
from tfopt.components.profile_training.training_variant import TrainingVariant
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import FEWEST_ROUNDS, speedup
from tfopt.processes.worker_process import CallFailed, WorkerProcess
from tfopt.reports.benchmark_report import SpeedupEstimate

REAL = ("mnist", "flights")
NAIVE, TUNED = "generator", "tuned"
INPUT = (NAIVE, "one by one", TUNED)
GOAL = 3.0  # times as fast as naive input code
MIN_EFFECT = 0.05
FREE = {"deterministic": False}
XLA = {"jit_compile": "on"}
CLUSTERS = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1"}

Seconds = Mapping[str, Sequence[float]]


@dataclass
class Setting:
    """A variant of a training.

    Attributes:
        name: Its name in the table.
        changes: Changes of the defaults of `train`.
        environment: Environment variables of its process.
        process: Its process, once it is started.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    process: WorkerProcess | None = None

    def call(self, *arguments: Any) -> Any:
        """Call a method of its worker."""
        assert self.process
        return self.process.call(*arguments)


def main() -> None:
    """Measure, and print both tables and whether the goal is met, for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=REAL, default=REAL)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each setting, without warm-up")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--folder", type=Path, help="store the examples here")
    parser.add_argument("--prepare", action="store_true", help="prepare the examples, and measure nothing")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in arguments.data:
            examples = prepare_data(folder / name, DATA[name])
            if not arguments.prepare:
                turn = arguments.seconds / arguments.rounds
                print("\n".join(measure(name, examples, turn, arguments.rounds)), flush=True)


def prepare_data(folder: Path, data: Data) -> Path:
    """Prepare the examples, unless they exist, and return their path."""
    target = folder / "examples"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        find("prepare_examples")(data=data.rows(folder), examples=target, **data.prepared)
    return target


def measure(name: str, examples: Path, turn: float, rounds: int) -> Iterator[str]:
    """Yield the results on one data set as lines of Markdown."""
    size = DATA[name].train.get("batch_size", 64)
    module = str(DOCS / name / "model.py")
    base = TrainingVariant(examples=str(examples.resolve()), module=module, seed=0, batch_size=size)
    with tempfile.TemporaryDirectory() as logs, contextlib.ExitStack() as stack:
        running = {setting.name: setting for setting in _start(stack, base, Path(logs))}
        steps = time_interleaved("real", list(running.values()), turn, rounds)
        batches = time_interleaved("input", [running[name] for name in INPUT], turn, rounds)
    yield f"\n{name}, batches of {base.batch_size}\n"
    yield from table("setting", "steps", steps)
    yield ""
    yield from table("batches alone", "batches", batches)
    yield ""
    for part, seconds in (("batches alone", batches), ("training", steps)):
        ratio = _ratio(seconds, NAIVE, TUNED)
        met = "met" if ratio.low >= GOAL else "MISSED"
        yield f"{part}, tuned input at least {GOAL:g}x as fast as naive: {_format(ratio)}: {met}"


def time_interleaved(part: str, settings: Sequence[Setting], turn: float, rounds: int) -> Seconds:
    """Return the seconds of a step, or of a batch, of each setting by round."""
    generator, order = random.Random(0), list(settings)
    seconds: dict[str, list[float]] = {each.name: [] for each in settings}
    for _ in range(rounds):
        generator.shuffle(order)
        for each in order:
            seconds[each.name].append(each.call("burst", part, turn))
    return seconds


def table(head: str, unit: str, seconds: Seconds) -> Iterator[str]:
    """Yield a Markdown table with a line for each setting."""
    yield f"| {head} | {unit}/s | against {NAIVE} | against {TUNED} | verdict |"
    yield "|---|---|---|---|---|"
    for name, durations in seconds.items():
        naive, tuned = (_ratio(seconds, base, name) for base in (NAIVE, TUNED))
        cells = [name, f"{1 / np.median(durations):.0f}", "-" if name == NAIVE else _format(naive)]
        yield f"| {' | '.join([*cells, *(('-', '-') if name == TUNED else (_format(tuned), tuned.verdict))])} |"


def _start(stack: contextlib.ExitStack, base: TrainingVariant, logs: Path) -> Iterator[Setting]:
    """Yield each setting after its first steps; settings that this machine cannot run are reported and left out."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    common = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": path}
    waiting = [Setting(name) for name in INPUT]
    while waiting:
        each = waiting.pop(0)
        log = logs / f"{each.name}.log"
        words = "naive", each.name
        each.process = stack.enter_context(WorkerProcess(*words, log=log, environment={**common, **each.environment}))
        try:
            facts = each.call("build", replace(base, **each.changes))
        except (CallFailed, ComponentError) as failure:
            reason = failure.received if isinstance(failure, ComponentError) else str(failure)
            print(f"{each.name}: not possible: {reason.splitlines()[0]}", flush=True)
            impossible = each.changes.items() - FREE.items()
            for other in waiting:
                other.changes = dict(other.changes.items() - impossible)
            continue
        yield each
        if each.name == TUNED:
            waiting += _settings_to_try(facts["supported"][1:])


def _settings_to_try(halves: Sequence[str]) -> Iterator[Setting]:
    """Yield the changes to try on top of tuned input.

    Args:
        halves: The 16-bit precisions of this device, the best last.
    """
    yield Setting("+ any order of sums", FREE)
    yield Setting("+ any order, XLA", FREE | XLA)
    yield Setting("+ any order, XLA clusters", FREE, CLUSTERS)
    yield from (Setting(f"+ {half}", {"precision": half}) for half in halves)
    yield Setting("+ 1 thread in an operation", {}, ONE_THREAD)
    yield Setting("all of these", FREE | XLA | ({"precision": halves[-1]} if halves else {}), ONE_THREAD)


def _ratio(seconds: Seconds, base: str, name: str) -> SpeedupEstimate:
    return speedup(np.array(seconds[base]), np.array(seconds[name]), min_effect=MIN_EFFECT)


def _format(ratio: SpeedupEstimate) -> str:
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    main()
