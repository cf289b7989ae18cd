"""Test that an interrupted or killed run leaves no incomplete outputs, and that the next run resumes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfopt.cli.main import main

DAG = '''
import os
import time
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component


@component(image="tf")
def first(data: Input[Files], report: Output[Report]) -> None:
    """Write a report.

    Args:
        data: A file.
        report: A report.
    """
    report.write({"a": 1})


@component(image="tf")
def second(data: Input[Report], report: Output[Report]) -> None:
    """Write half of the output, then wait.

    Args:
        data: A report.
        report: A report.
    """
    (report.path / "half").write_text("half")
    print("started", flush=True)
    time.sleep(float(os.environ["SLOW"]))
    report.write({"a": 2})


def slow_dag(steps, data: Input[Files]) -> None:
    """Two steps."""
    steps(second, data=steps(first, data=data).outputs["report"])
'''


BEAM_DAG = '''
import time
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component
from tfopt.data import beam_runner


@component(image="beam", beam=True)
def work(data: Input[Files], report: Output[Report]) -> None:
    """Wait in a Beam worker.

    Args:
        data: A file.
        report: Never complete.
    """
    import apache_beam as beam

    with beam_runner.pipeline() as pipeline:
        _ = pipeline | beam.Create([60]) | beam.Map(lambda seconds: print("started", flush=True) or time.sleep(seconds))


def beam_dag(steps, data: Input[Files]) -> None:
    """One step."""
    steps(work, data=data)
'''


@pytest.mark.nightly  # daily: a run that is interrupted
@pytest.mark.parametrize("engine", ["beam", pytest.param("process", marks=pytest.mark.nightly)])
def test_an_interrupted_beam_pipeline_ends_with_130(engine, tmp_path: Path):
    (tmp_path / "beam_dag.py").write_text(BEAM_DAG)
    words = ["run", tmp_path / "beam_dag.py", "--set", f"data={__file__}", "--root", tmp_path / "root"]
    run = [sys.executable, "-m", "tfopt.run", *words, "--engine", engine]
    stopped = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert stopped.stdout.readline() == "started\n"
    stopped.send_signal(signal.SIGINT)
    assert "tfopt: interrupted" in stopped.communicate(timeout=30)[1]
    assert stopped.returncode == 130
    assert not [path for path in (tmp_path / "root" / "artifacts").rglob("*") if "partial" in path.name]


@pytest.mark.parametrize(
    ("sign", "engine"),
    [
        (signal.SIGINT, "process"),
        (signal.SIGKILL, "process"),
        pytest.param(signal.SIGINT, "beam", marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, "beam", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_run_resumes_after_its_finished_steps(sign, engine, tmp_path: Path, monkeypatch, capsys):
    folder = tmp_path / "with spaces and ä"
    folder.mkdir()
    (folder / "slow_dag.py").write_text(DAG)
    words = ["run", str(folder / "slow_dag.py"), "--set", f"data={__file__}", "--root", str(folder / "root")]
    words += ["--engine", engine, "--json"]
    program = [sys.executable, "-m", "tfopt.run", *words]
    stopped = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env={**os.environ, "SLOW": "60"})
    assert stopped.stdout.readline() == "started\n"
    stopped.send_signal(sign)
    assert stopped.wait(timeout=30) == (130 if sign == signal.SIGINT else -9)
    incomplete = [
        file for file in (folder / "root" / "artifacts" / "second").rglob("half") if "partial" not in str(file)
    ]
    assert incomplete == []
    assert len(list((folder / "root" / "executions").rglob("*.json"))) == (engine == "process")

    monkeypatch.setenv("SLOW", "0")
    assert main(words) == 0
    outcome = json.loads(capsys.readouterr().out.removeprefix("started\n"))
    assert {step: result["reused"] for step, result in outcome.items()} == {"first": True, "second": False}
    assert json.loads(Path(outcome["second"]["outputs"]["report"], "report.json").read_text()) == {"a": 2}


IMPORTING = """
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["tfopt", "list"]
from tfopt.run import command
sys.exit(command())
"""


@pytest.mark.parametrize("module", ["tfopt.cli.main", "tfopt.declaration.library", "tfopt.processes.supervision"])
def test_an_interruption_during_the_imports_is_no_traceback(module):
    code = IMPORTING.replace("MODULE", repr(module))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "tfopt: interrupted\n")


CLEANING = """
import os, signal, sys, time
from tfopt.cli.termination import interrupted_by_sigterm, interrupted_silently, interruptible

def stop():
    os.kill(os.getpid(), signal.Signals[SIGN])
    time.sleep(60)

with interrupted_silently():
    try:
        with interruptible(), interrupted_by_sigterm():
            try:
                stop()
            finally:
                for _ in range(3):
                    os.kill(os.getpid(), signal.Signals[SIGN])
                print("clean", flush=True)
                time.sleep(1.1)
                stop()
    except KeyboardInterrupt as error:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        print(type(error).__name__)
"""


@pytest.mark.parametrize(("sign", "error"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Terminated")])
def test_copies_of_a_signal_do_not_interrupt_what_the_first_one_cleans_up_but_a_later_signal_does(sign, error):
    code = CLEANING.replace("SIGN]", f"{sign!r}]")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout, ended.stderr) == (f"clean\n{error}\n", "")
