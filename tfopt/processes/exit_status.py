"""Describe the end of a child process: its exit status, the last lines of its output, and where it crashed."""

import os
import re
import signal
import sys
from pathlib import Path

READ = 64 << 10  # bytes at the end of a log
CRASH = "Fatal Python error: "  # begins what faulthandler writes
FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')  # of faulthandler
HINTS = "Instructions for updating:"  # of TensorFlow, before one line of them
# Warnings and log lines of libraries, which are no reason for the end of a process.
NOISE = re.compile(r"(WARNING|INFO):|[IWE]\d{4} [\d:.]+ |\s+warnings\.warn\(|" + HINTS)

WARNING = re.compile(r"\S+:\d+: \w*Warning: ")  # of Python


def describe_exit(code: int) -> str:
    """Describe an exit status.

    >>> describe_exit(-9)
    'was killed by SIGKILL'
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log file, without warnings of libraries and without the frames of a crash."""
    lines: list[str] = []
    follows_hints = in_warning = False
    for line in _read(log).partition(CRASH)[0].splitlines():
        in_warning = bool(WARNING.match(line)) or (in_warning and line.startswith(" "))  # its other lines are indented
        if not follows_hints and not in_warning and not NOISE.match(line):
            lines.append(line)
        follows_hints = line.startswith(HINTS)
    return "\n".join(lines[-count:])


def last_line(log: Path) -> str:
    """Return ``: `` with the last nonempty line, most often the reason, and where faulthandler saw a crash."""
    lines = [line.strip() for line in last_lines(log).splitlines() if line.strip()]
    frame = innermost_frame(_read(log).partition(CRASH)[2])
    return (f": {lines[-1][:300]}" if lines else "") + (f" (in {frame})" if frame else "")


def innermost_frame(crash: str) -> str:
    """Return the innermost line of the user's files in faulthandler's text, or else of a library; empty without any."""
    frames = [match.groups() for match in FRAME.finditer(crash)]
    own = [frame for frame in frames if not frame[0].startswith((sys.prefix, str(Path(os.__file__).parent)))]
    return "{}, line {}, in {}".format(*(own or frames)[0]) if frames else ""


def _read(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - READ))
        return stream.read().decode(errors="replace")
