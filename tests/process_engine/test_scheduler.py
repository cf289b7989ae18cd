"""Test which steps of a run are at work at the same time, and what ends when one fails or the run is interrupted."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.artifacts import Files, Report
from tfopt.cli.terminal.log_redirect import LogFormatter
from tfopt.component import Input, Output, component
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.execution import code_digest
from tfopt.process_engine import scheduler
from tfopt.process_engine.runner import run
from tfopt.processes.subprocess_call import run_in_child

PAUSE = 0.3
at_work: list[str] = []
most_at_work: dict[str, int] = {}


def record(name: str) -> None:
    """Be at work for a while, and record how many steps were meanwhile."""
    at_work.append(name)
    logging.getLogger("tfopt.tests").info("at work")
    end = time.monotonic() + PAUSE
    while time.monotonic() < end:
        for other in at_work:
            most_at_work[other] = max(most_at_work.get(other, 0), len(at_work))
        time.sleep(0.01)
    at_work.remove(name)


@component(image="tf", concurrent=True)
def convert(data: Input[Files], report: Output[Report], *, name: str, trust_model_code: bool = False) -> None:
    """Work next to others.

    Args:
        data: Anything.
        report: A number.
        name: The name of the work.
        trust_model_code: As in components that load models.
    """
    record(name)
    if name == "fails":
        raise ComponentError("this", "something else", "change it")
    report.write({"number": 1})


@component(image="tf", cache="never")
def measure(reports: Input[list[Report]], report: Output[Report]) -> None:
    """Work alone.

    Args:
        reports: What was made.
        report: A number.
    """
    record("measure")
    report.write({"number": 2})


@component(image="tf", cache="never")
def measure_first(data: Input[Files], report: Output[Report]) -> None:
    """Work alone, and wait for nothing.

    Args:
        data: Anything.
        report: A number.
    """
    record("measure_first")
    report.write({"number": 2})


@component(image="tf", concurrent=True)
def sleep(data: Input[Files], report: Output[Report], *, name: str) -> None:
    """Sleep in a child process.

    Args:
        data: Anything.
        report: Never written.
        name: The name of a file next to the data.
    """
    run_in_child(sleep_in_child, data.path.with_name(name), doing="sleeping")


def sleep_in_child(file: Path) -> None:
    """Write the IDs of this process and of its server, and sleep."""
    file.write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(120)


def three(steps, data: Input[Files], *, last: str = "c") -> None:
    """Measure, make three, and measure them."""
    steps(measure_first, data=data)
    made = [steps(convert, id=name, data=data, name=name).outputs["report"] for name in "ab"]
    made.append(steps(convert, id="c", data=data, name=last).outputs["report"])
    steps(measure, reports=made)


def two_that_sleep(steps, data: Input[Files]) -> None:
    """Sleep twice."""
    for name in "ab":
        steps(sleep, id=name, data=data, name=name)


def two_with_trust(steps, data: Input[Files]) -> None:
    """Trust the code of one model only."""
    steps(convert, id="a", data=data, name="a")
    steps(convert, id="b", data=data, name="b", trust_model_code=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    most_at_work.clear()
    at_work.clear()
    file = tmp_path / "data.txt"
    file.write_text("one\n")
    return file


def test_steps_that_may_run_side_by_side_do_and_the_others_run_alone(data, tmp_path):
    outcomes = run(trace(three), {"data": data}, tmp_path / "root", jobs=2)
    assert list(outcomes) == ["measure_first", "a", "b", "c", "measure"]
    assert most_at_work.pop("measure") == most_at_work.pop("measure_first") == 1
    assert sorted(most_at_work) == ["a", "b", "c"] and max(most_at_work.values()) == 2


def test_the_code_of_all_steps_is_read_in_one_thread(data, tmp_path, monkeypatch):
    """Python 3.11 fails at random when two threads parse source code."""
    threads, real = set(), code_digest.describe
    monkeypatch.setattr(code_digest, "describe", lambda *key: (threads.add(threading.current_thread()), real(*key))[1])
    run(trace(three), {"data": data}, tmp_path / "root", jobs=3)
    assert threads == {threading.main_thread()}


def test_one_job_is_one_step_after_another_in_the_order_of_the_pipeline(data, tmp_path):
    order = []
    real = record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "record", lambda name: (order.append(name), real(name)))
        run(trace(three), {"data": data}, tmp_path / "root", jobs=1)
    assert order == ["measure_first", "a", "b", "c", "measure"] and set(most_at_work.values()) == {1}


def test_the_declared_memory_of_steps_at_work_fits_into_what_is_free(data, tmp_path, monkeypatch):
    class Little:
        available = 7 << 30  # each declares 4 GiB

    monkeypatch.setattr(scheduler.psutil, "virtual_memory", Little)
    run(trace(three), {"data": data}, tmp_path / "root", jobs=3)
    assert set(most_at_work.values()) == {1}
    most_at_work.clear()
    Little.available = 8 << 30
    run(trace(three), {"data": data}, tmp_path / "other", jobs=3)
    assert max(most_at_work.values()) == 2


def test_steps_that_trust_different_code_are_not_at_work_together(data, tmp_path):
    run(trace(two_with_trust), {"data": data}, tmp_path / "root", jobs=2)
    assert most_at_work == {"a": 1, "b": 1}


def test_steps_at_work_when_one_fails_end_and_are_reused(data, tmp_path):
    with pytest.raises(ComponentError, match="this"):
        run(trace(three), {"data": data, "last": "fails"}, tmp_path / "root", jobs=3)
    assert "measure" not in most_at_work
    again = run(trace(three), {"data": data}, tmp_path / "root", jobs=3)
    assert [step for step, outcome in again.items() if outcome.reused] == ["a", "b"]


def test_log_lines_of_steps_side_by_side_name_their_step(data, tmp_path):
    lines = []

    class Collector(logging.Handler):
        def emit(self, entry):
            lines.append(LogFormatter("%(message)s").format(entry))

    log, collector = logging.getLogger("tfopt"), Collector()
    log.setLevel(logging.INFO)
    log.addHandler(collector)
    try:
        run(trace(three), {"data": data}, tmp_path / "root", jobs=2)
    finally:
        log.removeHandler(collector)
    assert {"a: at work", "b: at work", "c: at work", "at work"} <= set(lines)
    assert lines.index("[2/5] a …") < lines.index("a: at work") < lines.index("[5/5] measure …")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_after_an_interruption_no_process_and_no_staging_folder_is_left_and_the_next_run_works(data, tmp_path, number):
    program = (
        "import sys; from tfopt.cli.main import main; sys.exit(main("
        f"['run', {str(tmp_path / 'sleeping.py')!r}, '--engine', 'process', '--jobs', '2', '--set', 'data={data}', "
        f"'--root', {str(tmp_path / 'root')!r}]))"
    )
    (tmp_path / "sleeping.py").write_text(
        "from tests.process_engine.test_scheduler import two_that_sleep as sleeping\n"
    )
    started = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    files = [data.with_name(name) for name in "ab"]
    children = {
        int(pid) for file in files for pid in wait_until(lambda file=file: file.exists() and file.read_text()).split()
    }
    processes = [psutil.Process(pid) for pid in children]
    assert len(processes) == 3  # two forks of a server
    started.send_signal(number)
    begun = time.monotonic()
    _, errors = started.communicate(timeout=60)
    wait_until(lambda: all(map(has_ended, processes)), 5 - (time.monotonic() - begun))
    if number != signal.SIGKILL:
        assert started.returncode == 130
        assert "Traceback" not in errors
        assert not list((tmp_path / "root").glob("artifacts/*/*/.*"))
    assert not list((tmp_path / "root").glob("executions/*/*.json"))
