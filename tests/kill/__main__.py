"""Kill and interrupt commands at their changes of the file system, let single calls fail, and print the defects.

``python -m tests.kill [PATTERN] --kills 1000 --signals 84 --faults`` prints the defects, a table of kinds, a summary.
"""

import argparse
import collections
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kill.cases import QUICK, Case
from tests.kill.faults import GOOD, run_faults
from tests.kill.killed_command import SIGNS
from tests.kill.runner import KillRunner
from tests.trial_log import Trial, TrialLog

KILLED, ENDED = "killed", "ended before"
MOMENTS = {"first": 0.0, "middle": 0.5, "last": 1.0}  # of the changes of a command
INTERRUPTED = (*QUICK, "process", "beam")


def main(words: Sequence[str] | None = None) -> int:
    """Run the trials, and return 1 if there is a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="commands whose names match this expression")
    parser.add_argument("--kills", type=int, default=0, help="number of kills")
    parser.add_argument("--signals", type=int, default=0, help="number of signals, of 84")
    parser.add_argument("--faults", action="store_true", help="let each call of the file system fail with each error")
    parser.add_argument("--every", action="store_true", help="kill every component, not only the quick ones")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--inputs", type=Path, help="a folder to write the inputs to, or to read them from")
    parser.add_argument("--results", type=Path, help="a file with the results, from which the trials are continued")
    options = parser.parse_args(words)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in background jobs; the killed commands would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    log = TrialLog(options.results, (KILLED, ENDED, GOOD))
    with tempfile.TemporaryDirectory(prefix="tfopt-kill-") as name:
        for trial in _trials(options, Path(name), log):
            log.add(trial)
            if time.monotonic() - begun > options.seconds:
                break
    counts = collections.Counter(trial.kind.partition(" ")[0] for trial in log.trials)
    print(log.table())
    print(
        f"kill: {counts['kill']} kills, {counts['signal']} signals, {counts['fault']} faults "
        f"in {time.monotonic() - begun:.0f} s: {log.scores()}; {log.defects} defects"
    )
    return bool(log.defects)


def _trials(options: argparse.Namespace, folder: Path, log: TrialLog) -> Iterator[Trial]:
    tried = collections.Counter(trial.name for trial in log.trials)
    if options.kills or options.signals:
        inputs = (options.inputs or folder / "inputs").resolve()
        if not (inputs / "inputs.json").is_file():
            inputs.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", "tests.kill.cases", str(inputs), "every" if options.every else "quick"]
            made = subprocess.run(words, check=False, capture_output=True, text=True)
            if made.returncode:
                sys.exit(f"the inputs were not made: {made.stderr[-2_000:]}")
        from tests.kill.cases import make_cases

        cases = [case for case in make_cases(inputs, every=options.every) if re.search(options.pattern, case.name)]
        runner = KillRunner(cases, folder / "cases")
        if options.signals:
            interrupted = [case for case in cases if case.name in INTERRUPTED]
            yield from _signals(runner, interrupted, options.signals, tried)
        yield from _kills(runner, options.kills, tried)
    if options.faults:
        for engine in ("", "process"):
            yield from run_faults(folder, engine, tried=frozenset(tried))


def _signals(runner: KillRunner, cases: Sequence[Case], count: int, tried: collections.Counter) -> Iterator[Trial]:
    trials = list(itertools.product(MOMENTS.items(), cases, SIGNS))
    for (moment, part), case, sign in random.Random(0).sample(trials, min(count, len(trials))):
        name = f"{case.name}, {sign.name}, {moment} change"
        if name not in tried:
            defects = runner.interrupt(case, sign, part)
            yield Trial(f"signal {sign.name}", name, "defect" if defects else GOOD, "\n".join(defects))


def _kills(runner: KillRunner, count: int, tried: collections.Counter) -> Iterator[Trial]:
    for case, kill_at in runner.plan(count, random.Random(0)) if count else ():
        name = f"{case.name}, change {kill_at}"
        if tried[name]:
            tried[name] -= 1
            continue
        killed, defects = runner.kill(case, kill_at)
        score = "defect" if defects else KILLED if killed else ENDED
        yield Trial(f"kill {case.name}", name, score, "\n".join(defects))


if __name__ == "__main__":
    sys.exit(main())
