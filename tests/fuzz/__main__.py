"""Run all cases and print one line per defect, and a summary: ``python -m tests.fuzz [PATTERN]``."""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.runner import GOOD, run_cases


def main() -> int:
    """Run the cases, and return 1 if there is a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="run the cases whose names match this expression")
    parser.add_argument("--count", type=int, help="run the first cases only; their order is seeded")
    parser.add_argument("--originals", type=Path, help="a folder to write the originals to, or to read them from")
    parser.add_argument("--verbose", action="store_true", help="print each result with its text")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfopt-fuzz-") as folder:
        originals = options.originals or Path(folder, "originals")
        if not originals.is_dir():
            originals.mkdir(parents=True)
            words = [sys.executable, "-m", "tests.fuzz.originals", str(originals)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        from tests.fuzz.cases import all_cases

        cases = [case for case in all_cases() if re.search(options.pattern, case.name)][: options.count]
        counts: collections.Counter[str] = collections.Counter()
        for result in run_cases(cases, originals.resolve(), Path(folder, "scratch"), jobs=os.cpu_count() or 2):
            counts[result.score] += 1
            if options.verbose or result.score not in GOOD:
                print(f"{result.score}: {result.case.name} ({result.seconds:.1f} s)\n{result.text}\n", flush=True)
    defects = sum(count for score, count in counts.items() if score not in GOOD)
    scores = ", ".join(f"{score} {count}" for score, count in counts.most_common())
    print(f"fuzz: {len(cases)} damaged inputs in {time.monotonic() - begun:.0f} s: {scores}; {defects} defects")
    return bool(defects)


if __name__ == "__main__":
    sys.exit(main())
