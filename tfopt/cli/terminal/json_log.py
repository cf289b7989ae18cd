"""Log lines as JSON objects, one on each line of the standard error: ``--log-format json``.

A process between the command and its standard error passes the lines of the command on, and makes lines of everything
else that is written there: messages of native libraries, tracebacks, output of child processes.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import IO

from tfopt.dag.outcome import running_step
from tfopt.dag.run_events import RunEvent, RunStarted, StepEnded, StepStarted

OPTION, VARIABLE = "--log-format", "TFOPT_LOG_FORMAT"
FORMATS = ("text", "json")
THREE_PARTS = re.compile(r"received: (.*?)\nexpected: (.*?)\nhow to fix: (.*)", re.DOTALL)
DRAIN_S = 2.0  # to wait for other processes that still write
LONGEST = 1 << 20  # bytes of a line; a longer one becomes several

_mark = ""  # before this command's lines: the end of an incomplete line, and what no other output can have
_steps: list[str] = []  # that run


class FormatError(Exception):
    """No such format of log lines."""


def is_json() -> bool:
    """Return True if log lines are JSON."""
    return os.environ.get(VARIABLE) == "json"


@contextlib.contextmanager
def log_format(words: Sequence[str], *, is_process: bool = False) -> Iterator[list[str]]:
    """Use the format of ``--log-format``, or else of the variable, and yield the other words.

    Args:
        words: The command line.
        is_process: The standard error of this process becomes JSON, too, and not only log lines.

    Raises:
        FormatError: If there is no such format.
    """
    text = " ".join(words)
    value, others = os.environ.get(VARIABLE, FORMATS[0]), list(words)
    while (index := next((at for at, word in enumerate(others) if word.partition("=")[0] == OPTION), None)) is not None:
        _, equals, value = others.pop(index).partition("=")
        value = value if equals else others.pop(index) if index < len(others) else ""
    if value not in FORMATS:
        raise FormatError(f"{VARIABLE if OPTION not in text else OPTION}: {value!r}, not one of {', '.join(FORMATS)}")
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = value
    try:
        with _json_stderr() if is_process and is_json() else contextlib.nullcontext():
            yield others
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def follow_step(event: RunEvent) -> None:
    """Remember which steps run, for lines of code that does not know its step; a failed one is that of the error."""
    if isinstance(event, RunStarted):
        _steps.clear()
    elif isinstance(event, StepStarted):
        _steps.append(event.step)
    elif isinstance(event, StepEnded):
        _steps[:] = [event.step] if event.error else [step for step in _steps if step != event.step]


def write_error(text: str) -> None:
    """Write an error; one in three parts has them as fields."""
    text = text.removeprefix("tfopt: error\n").rstrip("\n")
    match = THREE_PARTS.search(text)
    parts = [part.replace("\n    ", "\n") for part in match.groups()] if match else []  # they are indented in text
    error = dict(zip(("received", "expected", "how_to_fix"), parts, strict=True)) if match else None
    print(_line(logging.ERROR, "tfopt", text, error=error), file=sys.stderr, flush=True)


class JsonFormatter(logging.Formatter):
    """Format log records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        ended, started = getattr(record, "step_ended", None), getattr(record, "step_started", None)
        step = started or ended
        event = "step_started" if started else "step_ended" if ended else None
        return _line(record.levelno, record.name, super().format(record), record.created, step=step, event=event)


def _line(level: int, logger: str, message: str, time: float | None = None, **facts: object) -> str:
    step = facts.pop("step", None) or running_step.get() or (_steps[-1] if _steps else None)
    return _mark + _object(logging.getLevelName(level), step, logger, message, time, **facts)


def _object(level: str, step: object, logger: str, message: str, time: float | None = None, **facts: object) -> str:
    moment = datetime.now(UTC) if time is None else datetime.fromtimestamp(time, UTC)
    fields = {"time": moment.isoformat(timespec="milliseconds"), "level": level, "step": step, "logger": logger}
    present = {name: value for name, value in facts.items() if value is not None}
    return json.dumps({**fields, "message": message, **present})


@contextlib.contextmanager
def _json_stderr() -> Iterator[None]:
    """Let a fork of this process, which must have one thread, write the standard error."""
    global _mark
    _mark, process = f"\n{secrets.token_hex(16)} ", os.getpid()
    read, write = os.pipe()
    sys.stderr.flush()
    if not (writer := os.fork()):
        os.close(write)
        _write_lines(os.fdopen(read, "rb"))
        os._exit(0)
    os.close(read)
    stderr = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        if os.getpid() == process:  # and not a fork of it
            ended = os.pidfd_open(writer)
            select.select([ended], [], [], DRAIN_S)
            os.close(ended)
            os.waitpid(writer, os.WNOHANG)
        _mark = ""


def _write_lines(source: IO[bytes]) -> None:
    """Write each line of a pipe as a JSON object until all of its writers have ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # for the command, whose last lines follow
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # a reader of the standard output waits for its end
        os.dup2(null, descriptor)
    mark, step = _mark.strip("\n").encode(), None
    while line := source.readline(LONGEST):
        text = line.removeprefix(mark).decode(errors="replace").strip()
        try:
            fields = json.loads(text) if line.startswith(mark) else None
        except ValueError:  # another process wrote in the middle of it
            fields = None
        if fields:
            step = None if fields.get("event") == "step_ended" else fields["step"]
        output = f"{text if fields else _object('INFO', step, 'stderr', text)}\n".encode() if text else b""
        with contextlib.suppress(OSError):  # it has no reader: the command must not wait for one
            while output:
                output = output[os.write(2, output) :]
