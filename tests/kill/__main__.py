"""Kill commands at their changes of the file system and print the defects: ``python -m tests.kill [PATTERN]``."""

import argparse
import collections
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kill.runner import KillRunner


def main() -> int:
    """Run the kills, and return 1 if there is a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="kill the commands whose names match this expression")
    parser.add_argument("--count", type=int, default=1000, help="number of kills")
    parser.add_argument("--every", action="store_true", help="every component, not only the quick ones")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--inputs", type=Path, help="a folder to write the inputs to, or to read them from")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfopt-kill-") as name:
        inputs = (options.inputs or Path(name, "inputs")).resolve()
        if not (inputs / "inputs.json").is_file():
            inputs.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", "tests.kill.cases", str(inputs), "every" if options.every else "quick"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        from tests.kill.cases import make_cases

        cases = [case for case in make_cases(inputs, every=options.every) if re.search(options.pattern, case.name)]
        runner = KillRunner(cases, Path(name, "cases"))
        counts: collections.Counter[str] = collections.Counter()
        for case, kill_at in runner.plan(options.count, random.Random(0)):
            if time.monotonic() - begun > options.seconds:
                break
            killed, defects = runner.kill(case, kill_at)
            counts["kills"] += 1
            counts["killed"] += killed
            counts["defects"] += bool(defects)
            for defect in defects:
                print(f"{case.name}, change {kill_at}: {defect}", flush=True)
    print(
        f"{counts['kills']} kills: {counts['killed']} in running work; defects: {counts['defects']} "
        f"({len(cases)} commands, {time.monotonic() - begun:.0f} s)"
    )
    return bool(counts["defects"])


if __name__ == "__main__":
    sys.exit(main())
