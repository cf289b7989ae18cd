"""A process that does what it is asked, call by call: both of its sides.

The parent keeps several of them and lets them take turns. A plain ``python -m``, so that nothing of the parent is in
it: its memory and its first call are its own. It answers over a pipe and leaves when that closes, so no death of the
parent can leave it running.
"""

import abc
import os
import re
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import how_it_ended, last_lines

PATIENCE = 1800.0  # seconds for one answer: compiling a large model may take minutes, but some calls never return


class Refused(Exception):  # noqa: N818  (a result, not an error of ours)
    """What was asked could not be done; the text says why. The process can be asked again."""


class Died(Refused):
    """The process ended; the text says how, with its last lines."""


class Asked(abc.ABC):
    """The parent's side of a process that is idle unless asked.

    Attributes:
        log: What it printed.
    """

    def __init__(self, pipe: Connection, log: Path) -> None:
        """Talk with it over this pipe."""
        self._pipe, self.log = pipe, log

    def ask(self, name: str, *arguments: Any, descriptor: int | None = None) -> Any:
        """Let it call one method of its worker, and return the answer.

        Args:
            name: Of the method.
            arguments: Picklable.
            descriptor: An open file to go with the call, which the method takes from the pipe.

        Raises:
            Refused: When the call raised there; `Died` when the process is gone.
        """
        try:
            self._pipe.send((name, arguments))
            if descriptor is not None:
                reduction.send_handle(self._pipe, descriptor, 0)
            if not self._pipe.poll(PATIENCE):
                self.kill()
                raise Died(f"gave no answer to {name!r} in {PATIENCE:g} seconds, and was stopped")
            worked, answer = self._pipe.recv()
        except (EOFError, OSError):
            code = self.wait()
            said = last_lines(self.log)
            raise Died(f"the process {how_it_ended(code)}" + (f"\n{said}" if said else "")) from None
        if not worked:
            raise answer if isinstance(answer, ComponentError) else Refused(answer)
        return answer

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it at once; it holds nothing that would need saving."""
        self.kill()
        self._pipe.close()

    @abc.abstractmethod
    def kill(self) -> None:
        """End it at once, where it has not ended."""

    @abc.abstractmethod
    def wait(self) -> int:
        """Return its exit status once it has ended; below 0 for a signal."""


class AskedProcess(Asked):
    """A fresh process that is idle unless asked."""

    def __init__(self, module: str, *words: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start it.

        Args:
            module: Run with ``python -m``; it calls `answer` with the descriptor that is its first word.
            words: Its other words.
            log: Where it prints to.
            environment: Variables in the place of this process's own.
        """
        ours, theirs = socket.socketpair()
        with theirs, log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), *words],
                env={**os.environ, **(environment or {})},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # it ends with the pipe, not with a terminal
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        super().__init__(Connection(ours.detach()), log)

    def kill(self) -> None:
        """End it at once, where it has not ended."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Return its exit status once it has ended; below 0 for a signal."""
        return self._process.wait()


def answer(pipe: Connection, worker: object) -> None:
    """Be the child: call the worker's methods as the parent asks, until it closes the pipe."""
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            result = True, getattr(worker, name)(*arguments)
        except ComponentError as error:
            result = False, error
        except Exception as error:  # whatever is raised is a result
            traceback.print_exc()
            result = False, f"{type(error).__name__}: {error}"[:1000]
        pipe.send(result)


def peak_memory() -> int:
    """The high-water mark of this process since it began, in bytes.

    Not ``resource.getrusage``: Linux carries its ``ru_maxrss`` over an exec, so it would be the parent's.
    """
    marks = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(marks[1]) * 1024 if marks else 0
