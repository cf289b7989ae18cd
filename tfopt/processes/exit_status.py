"""Describe the end of a child process: its exit status and the last lines of its output."""

import signal
from pathlib import Path


def describe_exit(code: int) -> str:
    """Describe an exit status.

    >>> describe_exit(-9)
    'was killed by SIGKILL'
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log file."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 500 * count))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-count:])


def last_line(log: Path) -> str:
    """Return ``: `` and the last nonempty line: most often the reason, and some callers show one line of the error."""
    lines = [line.strip() for line in last_lines(log).splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
