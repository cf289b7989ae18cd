"""Request/response worker process: client and server.

The parent runs several workers and lets them take turns. A worker is a plain ``python -m`` process that inherits
nothing from its parent, so its memory and its first call are its own. It communicates over a pipe and exits when the
pipe closes. On Linux it also ends at once, during an import or a call, when its parent ends.
"""

import abc
import multiprocessing
import os
import socket
import subprocess
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tfopt.errors import ComponentError
from tfopt.processes.exit_status import describe_exit, last_lines
from tfopt.processes.isolation import Limits, limited_command
from tfopt.processes.parent_death import PYTHON, kill_when_closed

TIMEOUT_S = 1800.0  # per call: compiling a large model may take minutes, but some calls never return


class CallFailed(Exception):  # noqa: N818  (a result, not an error of ours)
    """A call raised an exception, which is the text. The worker accepts further calls."""


class WorkerDied(CallFailed):
    """The worker ended; the text has its exit status and last lines."""


class WorkerClient(abc.ABC):
    """The parent's side of a worker process."""

    def __init__(self, pipe: Connection, log: Path) -> None:
        """Use this pipe for calls."""
        self._pipe, self.log = pipe, log
        self._lock = threading.Lock()  # threads may share a fork server

    def call(self, name: str, *arguments: Any, descriptor: int | None = None) -> Any:
        """Call a method of the worker and return its result.

        An open file that is sent with the call (`descriptor`) arrives in the pipe.

        Raises:
            CallFailed: If the method raised an exception.
            WorkerDied: If the process has ended, or did not return within `TIMEOUT_S`.
            ComponentError: If the method raised it.
        """
        try:
            with self._lock:
                self._pipe.send((name, arguments))
                if descriptor is not None:
                    reduction.send_handle(self._pipe, descriptor, 0)
                if not self._pipe.poll(TIMEOUT_S):
                    self.kill()
                    raise WorkerDied(f"gave no answer to {name!r} in {TIMEOUT_S:g} seconds, and was stopped")
                worked, result = self._pipe.recv()
        except (EOFError, OSError):
            code = self.wait()
            output = last_lines(self.log)
            raise WorkerDied(f"the process {describe_exit(code)}" + (f"\n{output}" if output else "")) from None
        if not worked:
            raise result if isinstance(result, ComponentError) else CallFailed(result)
        return result

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the worker; it has no state to save."""
        self.kill()
        self._pipe.close()

    @abc.abstractmethod
    def kill(self) -> None:
        """Kill the worker if it is still running."""

    @abc.abstractmethod
    def wait(self) -> int:
        """Wait until the worker ends and return its exit status, negative for a signal."""


class WorkerProcess(WorkerClient):
    """A worker in a new Python process."""

    def __init__(
        self,
        module: str,
        *words: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start ``python -m MODULE``, which calls `serve_calls` with the file descriptor in its first argument."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [*limited_command(limits), *PYTHON, "-m", module, str(number), *words]
            self._start(command, log, [number], env={**os.environ, **(environment or {})})
        super().__init__(Connection(ours.detach()), log)

    def _start(
        self,
        command: Sequence[str],
        log: Path,
        descriptors: Sequence[int] = (),
        *,
        channel: int = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a process that ends with this one, with a channel as its standard input and output if it has one."""
        reader, self._open_until_end = multiprocessing.Pipe(duplex=False)
        with reader, log.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                env=env,
                pass_fds=[*descriptors, reader.fileno()],
                start_new_session=True,  # closing the terminal must not end it; closing the pipe does
                stdin=channel,
                stdout=stream if channel == subprocess.DEVNULL else channel,
                stderr=stream,
            )
            kill_when_closed(self._process.pid, reader.fileno())

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill the worker if it is still running."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait until the worker ends and return its exit status, negative for a signal."""
        return self._process.wait()


def serve_calls(pipe: Connection, worker: object) -> None:
    """Run the worker's side: call the requested methods until the parent closes the pipe."""
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            result = True, getattr(worker, name)(*arguments)
        except ComponentError as error:
            result = False, error
        except Exception as error:  # every exception is returned to the parent
            traceback.print_exc()
            result = False, f"{type(error).__name__}: {error}"[:1000]
        pipe.send(result)
