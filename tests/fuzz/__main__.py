"""Run all cases and print each defect, a table of the kinds, and a summary: ``python -m tests.fuzz [PATTERN]``."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.runner import GOOD, run_cases
from tests.trial_log import Trial, TrialLog


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases, and return 1 if there is a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="run the cases whose names match this expression")
    parser.add_argument("--count", type=int, help="run the first cases only; their order is seeded")
    parser.add_argument("--originals", type=Path, help="a folder to write the originals to, or to read them from")
    parser.add_argument("--results", type=Path, help="a file with the results, from which the cases are continued")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="number of cases at once")
    parser.add_argument("--verbose", action="store_true", help="print each result with its text")
    options = parser.parse_args(words)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfopt-fuzz-") as folder:
        originals = options.originals or Path(folder, "originals")
        if not originals.is_dir():
            originals.mkdir(parents=True)
            command = [sys.executable, "-m", "tests.fuzz.originals", str(originals)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        from tests.fuzz.cases import all_cases

        cases = [case for case in all_cases() if re.search(options.pattern, case.name)][: options.count]
        log = TrialLog(options.results, GOOD)
        tried = {trial.name for trial in log.trials}
        waiting = [case for case in cases if case.name not in tried]
        for result in run_cases(waiting, originals.resolve(), Path(folder, "scratch"), jobs=options.jobs):
            log.add(Trial(result.case.kind, result.case.name, result.score, result.text))
            if options.verbose:
                print(f"{result.score}: {result.case.name} ({result.seconds:.1f} s)\n{result.text}\n", flush=True)
    print(log.table())
    print(
        f"fuzz: {len(log.trials)} damaged inputs in {time.monotonic() - begun:.0f} s: {log.scores()}; "
        f"{log.defects} defects"
    )
    return bool(log.defects)


if __name__ == "__main__":
    sys.exit(main())
