"""Print the results of `measure.sh` as Markdown for docs/benchmarks.md.

python tools/gpu/tables.py FOLDER
"""

import argparse
import re
from pathlib import Path

from tfopt.formatting import amount
from tfopt.reports import report_schema
from tfopt.reports.benchmark_report import BenchmarkReport, ModelBenchmark
from tfopt.reports.decision_report import DecisionReport

TIMES = re.compile(
    r"^(?P<name>\S.*?): (?P<time>[\d.]+ ms.* \(.* to .*\).*)$"
)  # a line of `time_steps.py` or `time_models.py`


def main() -> None:
    """Print the machine, what each step did, and a table for each run and each list of times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    facts = [line for name in ("gpu.txt", "check.log") if (folder / name).is_file() for line in lines(folder / name)]
    print("\n".join(f"    {line}" for line in facts if line.startswith(("NVIDIA ", "tfopt "))))
    print("\n| step | result |\n|---|---|")
    results = folder / "results.txt"
    for line in lines(results) if results.is_file() else ():
        name, _, result = line.partition(": ")
        print(f"| {name} | {result} |")
    for run in sorted(folder.glob("run-*")):
        print_run(run)
    for log in sorted(folder.glob("*.log")):
        rows = [match for line in lines(log) if (match := TIMES.match(line))]
        if rows:
            print(f"\n`{log.stem}`\n\n| measured | time |\n|---|---|")
            print("\n".join(f"| {row['name']} | {row['time']} |" for row in rows))


def lines(file: Path) -> list[str]:
    """Return the lines of a text file."""
    return file.read_text(errors="replace").splitlines()


def print_run(run: Path) -> None:
    """Print the measurements of the newest benchmark of a run's folder, and its decision."""
    newest = {
        name: max(run.rglob(f"{name}.json"), key=lambda file: file.stat().st_mtime, default=None)
        for name in ("benchmark", "decision")
    }
    if newest["benchmark"] is None:
        print(f"\n`{run.name}` has no measurement")
        return
    report = report_schema.load(BenchmarkReport, newest["benchmark"])
    sizes = [str(size) for size in report.batch_sizes]
    print(f"\n`{run.name}`: ratios to {report.baseline}, with 99 % intervals\n")
    print("| model |", " | ".join(f"batch {size}" for size in sizes), "|")
    print(f"|---|{'---|' * len(sizes)}")
    for model in report.models:
        failure = (model.error or "").partition("\n")[0].removeprefix("received: ").partition(" (how to fix")[0]
        cells = (
            [f"failed: {failure}".replace("|", "/"), *[""] * len(sizes[1:])]
            if failure
            else [cell(model, size) for size in sizes]
        )
        print(f"| {model.name} |", " | ".join(cells), "|")
    if newest["decision"]:
        decision = report_schema.load(DecisionReport, newest["decision"])
        print(f"\nSelected: {decision.selected}, {'blessed' if decision.blessed else 'not blessed'}. {decision.reason}")


def cell(model: ModelBenchmark, size: str) -> str:
    """Return the latency of a model at a batch size, its ratio to the baseline and the verdict."""
    if size not in model.latency:
        return "not measured"
    time = amount("latency", model.latency[size].p50)
    ratio = model.speedup.get(size)
    return f"{time}, {ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f}), {ratio.verdict}" if ratio else time


if __name__ == "__main__":
    main()
