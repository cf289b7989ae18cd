"""Time `tfopt fleet` over many destinations with long histories, as a whole command.

python benchmarks/fleet.py [--destinations N] [--runs N]
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfopt.model_store.run_history import ModelRecord, RunRecord
from tfopt.reports import report_schema
from tfopt.reports.decision_report import MeasurementConditions, QualityConditions, SpeedConditions

NAMES = (
    "accuracy",
    "log_loss",
    "macro_f1",
    "latency",
    "latency_p90",
    "latency_p99",
    "throughput",
    "size",
    "memory",
    "load",
)


def write_destination(folder: Path, runs: int) -> None:
    """Write the history of daily runs, and folders of the last three versions."""
    conditions = MeasurementConditions(
        QualityConditions("classification", "label", "test"), SpeedConditions("cpu", 1, [1])
    )
    model = ModelRecord("tflite int8", "d", "tflite", dict.fromkeys(NAMES, 0.9))
    (folder / "history").mkdir(parents=True)
    for number in range(1, runs + 1):
        age = datetime.timedelta(days=runs - number)
        run = RunRecord(
            decision=f"{folder.name} {number}",
            time=(datetime.datetime.now(datetime.UTC) - age).isoformat(),
            blessed=True,
            version=number,
            conditions=conditions,
            winner=model,
            parent=model,
            versions={"tfopt": "0.2.0", "ai-edge-litert": "2.3.0"},
        )
        (folder / "history" / f"{number:016x}.json").write_text(json.dumps(report_schema.dump(run), indent=1))
    for number in range(max(1, runs - 2), runs + 1):
        (folder / str(number)).mkdir()


def main() -> None:
    """Write the destinations and print the time of the command with its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--destinations", type=int, default=500)
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = [f"model-{number}" for number in range(arguments.destinations)]
        for name in names:
            write_destination(Path(folder, name), arguments.runs)
        start = time.perf_counter()
        command = [str(Path(sys.executable).with_name("tfopt")), "fleet", *names, "-o", "fleet.html"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
    print(f"{arguments.destinations} destinations with {arguments.runs} runs each, table and page: {seconds:.1f} s")


if __name__ == "__main__":
    main()
