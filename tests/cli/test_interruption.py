"""A run that is stopped or killed in the middle leaves nothing half-written, and the next one resumes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DAG = '''
import os
import time
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component


@component(image="tf")
def first(data: Input[Files], report: Output[Report]) -> None:
    """Be quick.

    Args:
        data: A file.
        report: Something.
    """
    report.write({"a": 1})


@component(image="tf")
def second(data: Input[Report], report: Output[Report]) -> None:
    """Be slow, once half is written.

    Args:
        data: A report.
        report: Something.
    """
    (report.path / "half").write_text("half")
    print("started", flush=True)
    time.sleep(float(os.environ["SLOW"]))
    report.write({"a": 2})


def slow_dag(steps, data: Input[Files]) -> None:
    """Two steps."""
    steps(second, data=steps(first, data=data).outputs["report"])
'''


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_resumes_where_it_was(sign, tmp_path: Path):
    folder = tmp_path / "with spaces and ä"
    folder.mkdir()
    (folder / "slow_dag.py").write_text(DAG)
    words = [
        sys.executable,
        "-m",
        "tfopt.run",
        "run",
        folder / "slow_dag.py",
        "--set",
        f"data={__file__}",
        "--root",
        folder / "root",
        "--json",
    ]
    stopped = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "SLOW": "60"})
    assert stopped.stdout.readline() == "started\n"
    stopped.send_signal(sign)
    assert stopped.wait(timeout=30) == (130 if sign == signal.SIGINT else -9)
    left = [file for file in (folder / "root" / "artifacts" / "second").rglob("half") if "partial" not in str(file)]
    assert left == []

    resumed = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "SLOW": "0"})
    outcome = json.loads(resumed.stdout.removeprefix("started\n"))
    assert {step: found["reused"] for step, found in outcome.items()} == {"first": True, "second": False}
    assert json.loads(Path(outcome["second"]["outputs"]["report"], "report.json").read_text()) == {"a": 2}
