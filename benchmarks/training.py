"""What a training gains from its input code, XLA, 16 bits and threads: steps a second, with a verdict each.

    python benchmarks/training.py [--data mnist flights] [--seconds 8] [--rounds 8] [--folder FOLDER]

Each setting trains the same network on the same examples in a process of its own, and all take turns of a second, in an
order drawn anew each round. `generator` and `one by one` are naive input code (`benchmarks/naive.py`); `tuned` is how
`train` reads, at its defaults. A setting with + is `tuned` with that alone; the last line has all of them. Ratios are
of the time of a step, the median over the rounds with the 99 % interval and the verdict that `benchmark` gives; against
`generator` and against `tuned`. The second table is of batches alone, from which nothing is learnt.

XLA does not promise the same sums each time, so it is compared without that promise (`any order of sums`). It compiles
whole steps, or where a layer forbids that nothing; `clusters` are the parts that TensorFlow chooses itself. What cannot
be is told, and left out of the last line. With --folder the examples stay there, and are not prepared again.
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
from tfopt.components.profile_training.training_variant import Setup
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import FEWEST_ROUNDS, Speedup, speedup
from tfopt.processes.rpc import AskedProcess, Refused

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
    """One way to train.

    Attributes:
        name: In the table.
        changes: What of the setup is other than `train` has it.
        environment: Variables of its process.
        process: It, once it is started.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    process: AskedProcess | None = None

    def ask(self, *question: Any) -> Any:
        """Ask its process."""
        assert self.process
        return self.process.ask(*question)


def main() -> None:
    """Measure, and print both tables and whether the goal is met, for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=REAL, default=REAL)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each setting; settling comes on top")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--folder", type=Path, help="keep the examples here")
    parser.add_argument("--prepare", action="store_true", help="make the examples, and measure nothing")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in given.data:
            examples = prepared(folder / name, DATA[name])
            if not given.prepare:
                print("\n".join(measured(name, examples, given.seconds / given.rounds, given.rounds)), flush=True)


def prepared(folder: Path, data: Data) -> Path:
    """The examples, made where they are not there yet."""
    target = folder / "examples"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        find("prepare_examples")(data=data.rows(folder), examples=target, **data.prepared)
    return target


def measured(name: str, examples: Path, burst: float, rounds: int) -> Iterator[str]:
    """Lines of Markdown: what was found on one data set."""
    size = DATA[name].train.get("batch_size", 64)
    usual = "module", "module", "auto", 0, 0, 0, 2
    base = Setup(str(examples.resolve()), str(DOCS / name / "model.py"), "label", 0, True, size, *usual)
    with tempfile.TemporaryDirectory() as logs, contextlib.ExitStack() as stack:
        running = {each.name: each for each in _started(stack, base, Path(logs))}
        steps = in_turns("real", list(running.values()), burst, rounds)
        batches = in_turns("input", [running[each] for each in INPUT], burst, rounds)
    yield f"\n{name}, batches of {base.batch_size}\n"
    yield from table("setting", "steps", steps)
    yield ""
    yield from table("batches alone", "batches", batches)
    yield ""
    for what, found in (("batches alone", batches), ("training", steps)):
        ratio = _ratio(found, NAIVE, TUNED)
        met = "met" if ratio.low >= GOAL else "MISSED"
        yield f"{what}, tuned input at least {GOAL:g}x as fast as naive: {_said(ratio)}: {met}"


def in_turns(what: str, settings: Sequence[Setting], burst: float, rounds: int) -> Seconds:
    """The seconds of a step, or of a batch, of each setting by round."""
    draw, order = random.Random(0), list(settings)
    seconds: dict[str, list[float]] = {each.name: [] for each in settings}
    for _ in range(rounds):
        draw.shuffle(order)
        for each in order:
            seconds[each.name].append(each.ask("burst", what, burst))
    return seconds


def table(head: str, unit: str, seconds: Seconds) -> Iterator[str]:
    """Markdown: a line for each setting."""
    yield f"| {head} | {unit}/s | against {NAIVE} | against {TUNED} | verdict |"
    yield "|---|---|---|---|---|"
    for name, took in seconds.items():
        naive, tuned = (_ratio(seconds, base, name) for base in (NAIVE, TUNED))
        cells = [name, f"{1 / np.median(took):.0f}", "-" if name == NAIVE else _said(naive)]
        yield f"| {' | '.join([*cells, *(('-', '-') if name == TUNED else (_said(tuned), tuned.verdict))])} |"


def _started(stack: contextlib.ExitStack, base: Setup, logs: Path) -> Iterator[Setting]:
    """Each setting, trained for its first steps; what this machine cannot do is told and left out."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    usual = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": path}
    waiting = [Setting(name) for name in INPUT]
    while waiting:
        each = waiting.pop(0)
        log = logs / f"{each.name}.log"
        words = "naive", each.name
        each.process = stack.enter_context(AskedProcess(*words, log=log, environment={**usual, **each.environment}))
        try:
            built = each.ask("build", replace(base, **each.changes))
        except (Refused, ComponentError) as failure:
            why = failure.received if isinstance(failure, ComponentError) else str(failure)
            print(f"{each.name}: can not be: {why.splitlines()[0]}", flush=True)
            unable = each.changes.items() - FREE.items()
            for other in waiting:
                other.changes = dict(other.changes.items() - unable)
            continue
        yield each
        if each.name == TUNED:
            waiting += _more(built["supported"][1:])


def _more(halves: Sequence[str]) -> Iterator[Setting]:
    """What is tried on top of tuned input.

    Args:
        halves: The 16-bit precisions of this device, the best last.
    """
    yield Setting("+ any order of sums", FREE)
    yield Setting("+ any order, XLA", FREE | XLA)
    yield Setting("+ any order, XLA clusters", FREE, CLUSTERS)
    yield from (Setting(f"+ {half}", {"precision": half}) for half in halves)
    yield Setting("+ 1 thread in an operation", {}, ONE_THREAD)
    yield Setting("all of these", FREE | XLA | ({"precision": halves[-1]} if halves else {}), ONE_THREAD)


def _ratio(seconds: Seconds, base: str, name: str) -> Speedup:
    return speedup(np.array(seconds[base]), np.array(seconds[name]), min_effect=MIN_EFFECT)


def _said(ratio: Speedup) -> str:
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


if __name__ == "__main__":
    main()
