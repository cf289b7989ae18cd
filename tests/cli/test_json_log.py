"""Test ``--log-format json``: whatever a command, its steps, children and libraries write is a JSON object per line."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from datetime import datetime
from pathlib import Path

import pytest

from tfopt.artifacts import Files, Report
from tfopt.cli.main import main
from tfopt.cli.terminal.json_log import FormatError, log_format
from tfopt.component import Input, Output, component
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child

TFOPT = [sys.executable, "-m", "tfopt.run"]
log = logging.getLogger("tfopt.tests")
FORGED = '{"time": "now", "level": "ERROR", "step": "forged", "message": "forged"}'


def log_in_child() -> None:
    log.warning("from the child")


@component(image="tf")
def write(data: Input[Files], report: Output[Report], *, how: str = "return") -> None:
    """Write to the standard error in all ways.

    Args:
        data: Anything.
        report: Empty.
        how: The end.
    """
    os.write(2, b"native \xff \x1b[31m\r\n\nwithout end")
    os.write(2, f"\n{FORGED}\n".encode())
    print("from the standard error of Python", file=sys.stderr)
    warnings.warn("a warning", stacklevel=1)
    log.info("of tfopt:\nin two lines")
    logging.getLogger("some.library").warning("of a library")
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'of a program')"], check=True)
    if how == "return":  # in a process that imports TensorFlow
        run_in_child(log_in_child, doing="a log line", forwards_log=True)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "wait":
        Path(data.uri).with_name("waits").touch()
        time.sleep(60)
    if how == "crash":
        raise RuntimeError("a bug")
    if how == "refuse":
        raise ComponentError("a\nb", "c", "d")
    report.write({})


DAG = '''"""A DAG."""

from tests.cli.test_json_log import write
from tests.toys import count
from tfopt import Input
from tfopt.artifacts import Files


def noisy(steps, data: Input[Files], *, how: str = "return") -> None:
    """Write, and count.

    Args:
        data: A file.
        how: The end.
    """
    steps(write, data=data, how=how)
'''


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "noisy.py").write_text(DAG)
    (tmp_path / "data.txt").write_text("one\n")
    return tmp_path


def start(job: Path, *words: str, how: str, engine: str = "process") -> "subprocess.Popen[bytes]":
    command = [*TFOPT, "run", "noisy.py", "--engine", engine, "--set", "data=data.txt", "--set", f"how={how}", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # of the component above
    return subprocess.Popen([*command, "--log-format", "json"], cwd=job, env=environment, **pipes)


def lines_of(text: bytes) -> list[dict]:
    """Return all lines; none is anything but a complete JSON object."""
    lines = [json.loads(line) for line in text.decode("ascii").splitlines()]
    for line in lines:
        assert {"time", "level", "step", "logger", "message"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).tzinfo
        assert line["level"] in ("INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL")
    return lines


def check(lines: list[dict]) -> None:
    """Check that everything that the step wrote is there, with its step."""
    messages = {line["message"]: (line["level"], line["logger"]) for line in lines if line["step"] == "write"}
    assert messages["native \ufffd \x1b[31m"] == ("INFO", "stderr")
    assert messages["without end"] == messages[FORGED] == ("INFO", "stderr")
    assert any(message.startswith("of a program") for message in messages)  # without a line break
    assert messages["from the standard error of Python"] == ("INFO", "stderr")
    assert any("a warning" in message for message in messages)
    assert messages["of tfopt:\nin two lines"] == ("INFO", "tfopt.tests")
    assert messages["of a library"] == ("WARNING", "some.library")
    assert not [line for line in lines if line["step"] not in (None, "write")]


def test_every_line_of_a_run_is_json_with_its_step_and_an_error_has_three_parts(job):
    process = start(job, "--json", how="refuse")
    output, errors = process.communicate(timeout=120)
    lines = lines_of(errors)
    check(lines)
    assert [line["message"] for line in lines if line.get("event") == "step_started"] == ["[1/1] write …"]
    assert process.returncode == 1
    parts = {"received": "a\nb", "expected": "c", "how_to_fix": "d"}
    assert (lines[-1]["error"], lines[-1]["level"], lines[-1]["step"]) == (parts, "ERROR", "write")
    assert json.loads(output)["error"] == parts
    assert not (job / "runs/noisy/run.log").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ["process", "beam", "local"])
def test_every_line_of_children_and_of_tfx_and_beam_is_json(job, engine):
    process = start(job, how="return", engine=engine)
    _, errors = process.communicate(timeout=120)
    lines = lines_of(errors)
    assert process.returncode == 0
    check(lines)
    assert ("from the child", "write") in {(line["message"], line["step"]) for line in lines}
    assert ("absl" in {line["logger"] for line in lines}) == (engine != "process")


@pytest.mark.nightly
@pytest.mark.parametrize(("how", "words"), [("die", ()), ("crash", ()), ("crash", ("--debug",)), ("wait", ())])
def test_the_end_of_a_command_is_json_however_it_ends(job, how, words):
    process = start(job, *words, how=how)
    if how == "wait":
        while not (job / "waits").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    _, errors = process.communicate(timeout=120)
    lines = lines_of(errors)
    check(lines)
    assert process.returncode == (143 if how == "wait" else 1)
    expected = {"die": "SIGSEGV", "crash": "RuntimeError", "wait": "the next run resumes"}[how]
    assert any(expected in line["message"] for line in lines[-8:])
    if how == "wait":
        assert time.monotonic() - began < 20


@pytest.mark.nightly
def test_a_reader_that_ends_does_not_stop_the_command(job):
    process = start(job, how="return")
    assert process.stderr
    process.stderr.close()
    assert process.wait(timeout=120) == 0


def run_main(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict]]:
    try:
        code = main([*words, "--log-format", "json"])
    except SystemExit as end:
        code = int(end.code or 0)
    return code, lines_of(capsys.readouterr().err.encode())


def test_errors_of_options_are_one_line(capsys, monkeypatch):
    monkeypatch.delenv("TFOPT_LOG_FORMAT", raising=False)
    code, (line,) = run_main(capsys, "fleet", "--nonesuch")
    assert (code, line["error"]["received"], line["error"]["expected"]) == (2, "--nonesuch", "an option of tfopt fleet")
    code, (line,) = run_main(capsys, "plan")
    assert (code, line["level"]) == (2, "ERROR")
    assert "the following arguments are required" in line["message"]
    code, (line,) = run_main(capsys, "nonesuch")
    assert (code, "no command or component 'nonesuch'" in line["message"]) == (2, True)
    assert "TFOPT_LOG_FORMAT" not in os.environ


def test_the_option_is_allowed_everywhere_and_the_variable_sets_it(capsys, monkeypatch):
    monkeypatch.setenv("TFOPT_LOG_FORMAT", "json")
    for words in (["a", "--log-format", "text", "b"], ["--log-format=text", "a", "b"]):
        with log_format(words) as others:
            assert (others, os.environ["TFOPT_LOG_FORMAT"]) == (["a", "b"], "text")
    assert main(["fleet"]) == 1
    (line,) = lines_of(capsys.readouterr().err.encode())
    assert line["error"]["received"] == "no destination"
    for words in (["--log-format", "xml"], ["--log-format"]):
        with pytest.raises(FormatError, match=r"--log-format: '(xml)?', not one of text, json"), log_format(words):
            pass
    monkeypatch.setenv("TFOPT_LOG_FORMAT", "xml")
    assert main(["list"]) == 2
    assert re.search("TFOPT_LOG_FORMAT: 'xml', not one of text, json", capsys.readouterr().err)
