"""Handle the state of the process that runs a command: closed or full output, and SIGTERM."""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes of a process that SIGINT or SIGTERM ended
COPY_S = 1.0  # within which a second signal is a copy of the first one


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised as Ctrl-C is: the outputs and processes of a command end in the same way."""


_raised = -math.inf  # time of the last signal that raised an interruption


def _is_copy() -> bool:
    """Return True for a signal that reaches this process again, while the command cleans up or just after that.

    A signal to the process group, as of systemd, reaches a supervised process twice: the supervisor passes its own on.
    """
    return time.monotonic() - _raised <= COPY_S


class _Interruption:
    """A signal handler that raises an error, but not again for a copy of the signal."""

    def __init__(self, error: type[KeyboardInterrupt]) -> None:
        self._error, self.has_raised = error, False

    def __call__(self, *_: Any) -> None:
        global _raised
        if not _is_copy():
            _raised, self.has_raised = time.monotonic(), True
            raise self._error


@contextlib.contextmanager
def interrupted_silently() -> Iterator[None]:
    """Let Ctrl-C end the process with a message in the context, outside of `interruptible`: nothing is written then."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    yield


def _end(*_: Any) -> None:
    if not _is_copy():
        os.write(2, b"tfopt: interrupted\n")
        os._exit(INTERRUPTED)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the context, which `interrupted_silently` has prevented."""
    is_silent = signal.getsignal(signal.SIGINT) == _end
    if is_silent:
        signal.signal(signal.SIGINT, _Interruption(KeyboardInterrupt))
    try:
        yield
    finally:
        if is_silent:
            signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise `Terminated` in the main thread when the process receives SIGTERM, unless the caller handles it.

    The interruption arrives as a plain `KeyboardInterrupt` if a library raises it again.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    terminate = _Interruption(Terminated)
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt as error:
        if terminate.has_raised:
            raise Terminated from error
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def open_streams() -> None:
    """Open closed standard streams on /dev/null: the next file would get their number, and the output of libraries."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def discard_output() -> None:
    """Write further output to /dev/null."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a stream without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
