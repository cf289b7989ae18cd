"""Test the process that supervises a command: what ends the command is reported, and signals reach it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMPONENT = '''
import ctypes
import os
import signal
import sys
import time

from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component


@component(image="tf")
def work(data: Input[Files], report: Output[Report], *, code: str = "") -> None:
    """Write half of the output, then run code.

    Args:
        data: A file.
        report: A report.
        code: What to run.
    """
    (report.path / "half").write_text("half")
    exec(code)
    report.write({"a": 1})
'''


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "mine.py").write_text(COMPONENT)
    run = [sys.executable, "-m", "tfopt.run", "mine:work", "--data", "mine.py", "--report", "out"]
    return [*run, "--code"]


def run(words: list[str], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run([*words, code], capture_output=True, text=True, cwd=folder, env=environment, timeout=60)


@pytest.mark.parametrize(
    ("code", "received"),
    [
        ("os._exit(0)", "work: the process ended with status 0 before its work was done"),
        pytest.param(
            *("os._exit(7)", "work: the process ended with status 7 before its work was done"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("os.abort()", "work: the process was killed by SIGABRT, in <string>, line 1, in <module>"),
            marks=pytest.mark.nightly,
        ),
        ("ctypes.string_at(0)", "work: the process was killed by SIGSEGV, in <string>, line 1, in <module>"),
        pytest.param(
            *("os.kill(os.getpid(), signal.SIGKILL)", "work: the process was killed by SIGKILL"),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_the_death_of_a_step_is_an_error_that_leaves_nothing(code, received, words, tmp_path):
    dead = run(words, code, tmp_path)
    assert dead.returncode == 1
    lines = dead.stderr.strip().splitlines()[-4:]
    assert lines[0] == "tfopt: error"
    assert lines[1].startswith(f"received: {received}")
    assert lines[2].startswith("expected: ") and lines[3].startswith("how to fix: ")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py", "tmp"}
    assert not list((tmp_path / "tmp").iterdir())
    assert run(words, "", tmp_path).returncode == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {"a": 1}


def test_a_crash_after_the_work_changes_nothing(words, tmp_path):
    done = run(words, "import atexit; atexit.register(os.abort)", tmp_path)
    assert (done.returncode, (tmp_path / "out" / "report.json").is_file()) == (0, True)


def test_forks_of_the_program_do_not_report_for_it(words, tmp_path):
    code = "pid = os.fork()\nif not pid: sys.exit(5)\nos.waitpid(pid, 0); os._exit(0)"
    assert "ended with status 0 before" in run(words, code, tmp_path).stderr


@pytest.mark.parametrize(
    ("sign", "exit_code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly)],
)
def test_a_signal_ends_the_step_and_removes_its_output(sign, exit_code, words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "print('started', flush=True); time.sleep(60)"
    original = signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL  # nohup ignores SIGHUP
    step = subprocess.Popen([*words, code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env=environment, preexec_fn=lambda: signal.signal(sign, original))  # fmt: skip
    assert step.stdout.readline() == "started\n"
    step.send_signal(sign)
    assert "the next run resumes" in step.communicate(timeout=30)[1]
    assert step.returncode == exit_code
    assert not list(tmp_path.glob(".out*"))


def test_no_process_stays_when_the_supervising_one_is_killed(words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "print(os.getpid(), flush=True); time.sleep(60)"
    step = subprocess.Popen([*words, code], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    child = Path("/proc", step.stdout.readline().strip())
    assert child.exists()
    step.kill()
    step.wait()
    until = time.monotonic() + 5
    while child.exists() and "zombie" not in (child / "status").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    assert not child.exists() or "zombie" in (child / "status").read_text()


def test_control_c_reaches_the_step_once(words, tmp_path):
    code = (
        "try: print('started', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    time.sleep(0.5); print('cleaned up', flush=True); raise"
    )
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.execve(sys.executable, [*words, code], {**os.environ, "PYTHONPATH": str(tmp_path)})
    text = b""
    while b"started" not in text:
        text += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"resumes" not in text:
        text += os.read(terminal, 1000)
    assert b"cleaned up" in text and text.count(b"tfopt: interrupted") == 1
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
