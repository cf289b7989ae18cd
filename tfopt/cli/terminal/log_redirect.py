"""Redirection of the log messages of TensorFlow, TFX and Beam from the terminal to a file."""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tfopt.cli.terminal import json_log
from tfopt.cli.terminal.detection import is_interactive
from tfopt.dag.outcome import running_step
from tfopt.dag.run_events import listening
from tfopt.errors import ComponentError
from tfopt.formatting import indented
from tfopt.processes.exit_status import last_lines
from tfopt.storage import scratch

# Not through a link, by which another user could have the messages appended to any file; a pipe is an error.
APPEND = os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
LIMIT = 4_000_000  # bytes of a log file, from which the next run starts a new one


class LogFormatter(logging.Formatter):
    """Write messages so that names in them neither control the terminal nor look like another message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name of the base class)
        """Return the line; of a step that runs next to others, with the name of the step."""
        if step := running_step.get():
            record.message = f"{step}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and following lines indented."""
        return indented(super().format(record))


def log_formatter(layout: str) -> logging.Formatter:
    """Return the formatter of log lines: JSON, or text in a layout."""
    return json_log.JsonFormatter() if json_log.is_json() else LogFormatter(layout)


@contextlib.contextmanager
def redirect_library_logs(log_file: Path, steps: int | None = None) -> Iterator[None]:
    """Send the messages of libraries to a file, and tfopt's progress to the terminal and the file.

    Native code writes to file descriptor 2, so the descriptor itself is redirected. The file is continued; a large one
    becomes ``FILE.1`` instead of the previous one. If the number of steps is known, a terminal gets a progress bar.
    With JSON lines there is no file: their logger distinguishes the messages of libraries.
    """
    if json_log.is_json():
        handler = logging.StreamHandler()
        handler.setFormatter(json_log.JsonFormatter())
        with _handling([handler], handler):
            yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # there is none yet, or another run renames it
        if log_file.stat().st_size > LIMIT:
            log_file.replace(log_file.with_name(f"{log_file.name}.1"))
    terminal_descriptor = os.dup(2)
    with (
        os.fdopen(os.open(log_file, APPEND, 0o666), "a") as stream,
        os.fdopen(terminal_descriptor, "w", buffering=1) as terminal,
        _terminal_handler(terminal, steps) as to_terminal,
    ):
        os.dup2(stream.fileno(), 2)
        to_file = _LogFile(stream, terminal)
        to_file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        to_terminal.setFormatter(LogFormatter("%(message)s"))
        try:
            with _handling([to_terminal, to_file], to_file):
                yield
        finally:
            os.dup2(terminal_descriptor, 2)


@contextlib.contextmanager
def _handling(own: Sequence[logging.Handler], of_libraries: logging.Handler) -> Iterator[None]:
    """Handle the messages of tfopt and of libraries; handlers of the calling program continue to get those of tfopt."""
    log, root = logging.getLogger("tfopt"), logging.getLogger()
    log_handlers, root_handlers = log.handlers[:], root.handlers[:]
    log.handlers[:] = [handler for handler in log_handlers if type(handler) is not logging.StreamHandler]
    log.handlers += own
    root.handlers[:] = [of_libraries]
    with contextlib.suppress(ImportError):  # absl is installed with TensorFlow only
        from absl import logging as absl_logging  # its handler would duplicate the messages

        absl_logging.get_absl_handler().setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.handlers[:] = log_handlers
        root.handlers[:] = root_handlers


class _LogFile(logging.StreamHandler):  # type: ignore[type-arg]
    """Handler of the log file: if it cannot be written, that is reported once, and the command goes on."""

    def __init__(self, stream: IO[str], terminal: IO[str]) -> None:
        super().__init__(stream)
        self._terminal: IO[str] | None = terminal

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif self._terminal:
            self._terminal.write(f"tfopt: messages are missing in the log file: {error}\n")
            self._terminal = None


@contextlib.contextmanager
def _terminal_handler(terminal: IO[str], steps: int | None) -> Iterator[logging.Handler]:
    if steps and is_interactive(terminal):
        from tfopt.cli.terminal.progress_bar import progress_bar  # imports rich

        with progress_bar(terminal, steps) as handler:
            yield handler
    else:
        yield logging.StreamHandler(terminal)


@contextlib.contextmanager
def capture_library_logs() -> Iterator[None]:
    """Send the messages of libraries to a temporary file; after an unexpected exception, keep it and print its path."""
    if json_log.is_json():
        with redirect_library_logs(Path()):
            yield
        return
    descriptor, name = tempfile.mkstemp(prefix="tfopt-", suffix=".log")
    os.close(descriptor)
    keep = False
    try:
        with redirect_library_logs(Path(name)):
            yield
    except ComponentError:
        raise
    except Exception:
        remaining = scratch.keep(Path(name))
        keep = remaining is not None
        shown = f"are in {remaining}" if keep else f"end with\n{indented(last_lines(Path(name)))}"
        print(f"tfopt: the log messages of libraries {shown}", file=sys.stderr)
        raise
    finally:
        if not keep:
            Path(name).unlink()


@contextlib.contextmanager
def progress_on_terminal() -> Iterator[None]:
    """Print tfopt's log on the terminal, unless the calling program has set a handler for it."""
    log = logging.getLogger("tfopt")
    if log.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter("%(message)s"))
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        with listening(json_log.follow_step):
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
