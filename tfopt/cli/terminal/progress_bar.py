"""Show the progress of a run on a terminal: a line for each finished step, and below them a bar."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class ProgressHandler(logging.Handler):
    """Print log messages above the bar; the bar follows the messages of `tfopt.dag.outcome` about steps."""

    def __init__(self, progress: Progress, steps: int) -> None:
        """Add the bar."""
        super().__init__()
        self._progress, self._task = progress, progress.add_task("", total=steps)
        self._running: list[str] = []  # more than one on an engine that runs steps at the same time

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message, except that of the start of a step, which the bar shows."""
        started, ended = getattr(record, "step_started", None), getattr(record, "step_ended", None)
        if started:
            self._running.append(started)
        elif ended in self._running:
            self._running.remove(ended)
            self._progress.advance(self._task)
        if started or ended:
            self._progress.update(self._task, description=", ".join(self._running), refresh=True)
        if not started:
            style = "dim" if getattr(record, "step_reused", False) else STYLES.get(record.levelno, "")
            self._progress.console.print(Text(self.format(record), style=style), soft_wrap=True)


@contextlib.contextmanager
def progress_bar(terminal: IO[str], steps: int) -> Iterator[logging.Handler]:
    """Show a bar at the bottom of a terminal, and yield the handler that shows log messages above it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=terminal, force_terminal=True, highlight=False)
    # What this process prints goes above the bar if it goes to a terminal too; a file or pipe gets it as it is.
    is_shared = sys.stdout.isatty()
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=is_shared,
        redirect_stderr=False,  # libraries write there, and that goes to the log file
        refresh_per_second=1,  # a step may be measuring latencies meanwhile
    ) as progress:
        yield ProgressHandler(progress, steps)
