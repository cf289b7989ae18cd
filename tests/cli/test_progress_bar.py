"""Test what a run shows on a terminal, and that files, pipes and CI get plain lines."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tfopt.cli.terminal.detection import is_interactive

ROOT = Path(__file__).parents[2]
DAG = '''
import os
import sys
import time
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component


@component(image="tf")
def work(data: Input[Files], report: Output[Report], *, how: str = "") -> None:
    """Work for a moment.

    Args:
        data: A file.
        report: A report.
        how: What happens.
    """
    print(f"printed {how}", flush=True)
    print("of a library", file=sys.stderr, flush=True)
    time.sleep(60 if how == "slow" else 0.4)
    if how == "die":
        os._exit(3)
    report.write({"a": 1})


def two(steps, data: Input[Files], *, how: str = "") -> None:
    """Two steps."""
    steps(work, data=data, id="first")
    steps(work, data=data, id="second", how=how)
'''
PLAIN = r"\[1/2\] first …\n\[1/2\] first: done in \d\.\d s\n\[2/2\] second …\n\[2/2\] second: done in \d\.\d s\n"


@pytest.fixture
def start(tmp_path: Path, monkeypatch) -> Callable[..., subprocess.Popen]:
    """Return a function that starts the run with its standard error on a terminal, and returns it and the terminal."""
    (tmp_path / "two.py").write_text(DAG)
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, stdout: int | None = None, **variables: str) -> tuple[subprocess.Popen, int]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "tfopt.run", "run", tmp_path / "two.py", "--set", f"data={__file__}"]
        process = subprocess.Popen(
            [*command, "--engine", "process", "--root", tmp_path / "root", *words],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **variables},
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        return process, ours

    return run


def read(terminal: int, until: str = "\0") -> str:
    """Return what the terminal got until a text, or until its programs have ended."""
    text, end = "", time.monotonic() + 30
    while until not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:  # all programs have closed it
                break
            text += part.decode(errors="replace")
    return text.replace("\r\n", "\n")


def test_a_terminal_shows_a_bar_and_a_line_for_each_finished_step(start, tmp_path):
    process, terminal = start()
    shown = read(terminal)
    assert process.wait() == 0
    bars = re.findall(r"(first|second) \S+ (\d)/2 \d:\d\d:\d\d", re.sub(r"\x1b\[\d+m", "", shown))
    assert {("first", "0"), ("second", "1")} <= set(bars)
    assert re.search(r"\[1/2\] first: done in 0\.\d s", shown) and "first …" not in shown
    assert shown.count("printed ") == 2 and "of a library" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is visible again
    log = (tmp_path / "root" / "run.log").read_text()
    assert "of a library" in log and "[1/2] first …" in log and "\x1b" not in log
    process, terminal = start()
    assert "\x1b[2m[1/2] first: reused\x1b[0m" in read(terminal)
    assert process.wait() == 0


def test_a_terminal_gets_plain_lines_if_the_user_or_ci_wants_them(start, monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(ours), os.fdopen(theirs) as stream:
        assert is_interactive(stream)
        for name, value in (("NO_COLOR", "1"), ("CI", "true"), ("TERM", "dumb")):
            with monkeypatch.context() as changed:
                changed.setenv(name, value)
                assert not is_interactive(stream), name
    process, terminal = start(CI="true")
    shown = read(terminal).replace("printed \n", "").partition("result: ")[0]
    assert process.wait() == 0
    assert re.fullmatch(PLAIN, shown)


def test_pipes_get_plain_lines(tmp_path):
    (tmp_path / "two.py").write_text(DAG)
    command = [sys.executable, "-m", "tfopt.run", "run", tmp_path / "two.py", "--set", f"data={__file__}"]
    words = ["--engine", "process", "--root", tmp_path / "root"]
    done = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(PLAIN, done.stderr)
    printed, _, results = done.stdout.partition("result: ")
    assert printed == "printed \nprinted \n"
    assert results.splitlines()[-1] == f"all results: {tmp_path / 'root'}"


def test_the_standard_output_is_unchanged_next_to_a_bar(start):
    read_end, write_end = os.pipe()
    process, terminal = start("--json", stdout=write_end)
    os.close(write_end)
    shown = read(terminal)
    with os.fdopen(read_end) as pipe:
        first, second, *rest = pipe.read().splitlines()
    assert process.wait() == 0
    assert first == second == "printed " and "printed" not in shown
    assert set(json.loads("\n".join(rest))) == {"first", "second"}
    assert "1/2" in shown


def test_ctrl_c_removes_the_bar_and_ends_with_130(start):
    process, terminal = start("--set", "how=slow")
    shown = read(terminal, until="printed slow")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    shown += read(terminal)
    assert process.wait(timeout=20) == 130
    assert shown.endswith("tfopt: interrupted; incomplete outputs are removed, and the next run resumes\n")
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_the_bar_of_a_process_that_died_is_removed_before_the_error(start):
    process, terminal = start("--set", "how=die")
    shown = read(terminal)
    assert process.wait() == 1
    end = shown[shown.rindex("\r\x1b[2K\x1b[?25h") :]
    assert end.startswith("\r\x1b[2K\x1b[?25h\x1b[1;31mtfopt: error\x1b[0m\n\x1b[1mreceived:\x1b[0m work: the process")
    assert "?25l" not in end
