"""Processor time of a process that imports TensorFlow and ends, with and without `speed_up_imports`.

    python benchmarks/startup.py [--turns 7] [--json FILE]

Both processes take turns; a ratio is that of two neighbouring ones, and the table has the median. Processor time
hardly depends on other work on the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

MODULES = ("tensorflow", "tfopt.tfx.runner, tensorflow")
PREPARED = "from tfopt.processes.startup import speed_up_imports; speed_up_imports(); "


def main() -> None:
    """Measure each import and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for modules in MODULES:
        cpu_seconds("import " + modules)  # so that the files are in the page cache
        turns = [
            (cpu_seconds("import " + modules), cpu_seconds(f"{PREPARED}import {modules}"))
            for _ in range(arguments.turns)
        ]
        before, after = (statistics.median(column) for column in zip(*turns, strict=True))
        ratio = statistics.median(plain / prepared for plain, prepared in turns)
        rows.append({"modules": modules, "before_cpu_s": before, "after_cpu_s": after, "ratio": ratio})
    print("| import | CPU s without | CPU s with | ratio |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['modules']} | {row['before_cpu_s']:.2f} | {row['after_cpu_s']:.2f} | {row['ratio']:.2f}x |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def cpu_seconds(program: str) -> float:
    """Run a program in a new process and return its processor time, of user and system."""
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
