"""Apply mutants to a copy of the repository and print whether the tests find them: ``python -m tests.mutants``."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.mutants.mutant import read_mutants
from tests.mutants.runner import MutantRunner, Result

ROOT = Path(__file__).parents[2]


def main(words: Sequence[str] | None = None) -> int:
    """Run the mutants, and return 1 if one survived or could not be counted."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    only = "mutants with this text in their file or description; may be repeated"
    parser.add_argument("--only", action="append", metavar="TEXT", help=only)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="mutants at a time (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="seconds for the tests of a mutant")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")
    options = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: no process and no folder remains
    begun = time.monotonic()
    try:
        results = _run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.json:
        entries = [{**asdict(result.mutant), "state": result.state, "by": result.by, "seconds": result.seconds}
                   for result in results]  # fmt: skip
        options.json.write_text(json.dumps(entries, indent=1) + "\n")
    counts = {state: sum(result.state == state for result in results) for state in ("found", "survived", "not counted")}
    others = "".join(f", {count} {state}" for state, count in counts.items() if count and state != "found")
    print(f"{len(results)} mutants: {counts['found']} found{others} ({time.monotonic() - begun:.0f} s)")
    return int(counts["found"] < len(results))


def _run(options: argparse.Namespace) -> list[Result]:
    texts = options.only or [""]
    mutants = [mutant for mutant in read_mutants(options.root) if any(text in str(mutant) for text in texts)]
    with tempfile.TemporaryDirectory(prefix="tfopt-mutants-") as folder:
        runner = MutantRunner(options.root.resolve(), Path(folder), options.limit)
        results = []
        for result in runner.run(mutants, options.workers):
            results.append(result)
            print(f"[{len(results)}/{len(mutants)}] {result.describe()}", flush=True)
        confirmed = runner.confirm(results)
        for result in confirmed:
            if result.state == "not counted":
                print(result.describe(), flush=True)
    return confirmed


if __name__ == "__main__":
    sys.exit(main())
