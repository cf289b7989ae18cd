"""Handle the state of the process that runs a command: closed or full output, and SIGTERM."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised as Ctrl-C is: the outputs and processes of a command end in the same way."""


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise `Terminated` in the main thread when the process receives SIGTERM, unless the caller handles it.

    The interruption arrives as a plain `KeyboardInterrupt` if a library raises it again.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    received = False

    def interrupt(*_: Any) -> None:
        nonlocal received
        received = True
        raise Terminated

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        if received:
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
