"""Processes that begin with everything imported: forks of one that does nothing but import and fork.

Importing TensorFlow takes seconds, and a fork of a process that has imported it some milliseconds. It is a process as
new as any other, with memory, threads and devices of its own, as long as the first one stays idle.
"""

import gc
import os
import signal
import socket
import traceback
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path

from tfopt.processes.parent_death import end_with
from tfopt.processes.rpc import Asked, AskedProcess, answer


class Fork(Asked):
    """A fork of a process whose module calls `answer_by_forks`. It ends with the one it was forked from, too."""

    def __init__(self, origin: AskedProcess, log: Path) -> None:
        """Have it forked.

        Args:
            origin: The process to fork.
            log: Where it prints to, behind what is there.

        Raises:
            Died: When there is no such process any more.
        """
        ours, theirs = socket.socketpair()
        super().__init__(Connection(ours.detach()), log)
        with theirs:
            self._number = origin.ask("fork", str(log), descriptor=theirs.fileno())
        self._origin = origin
        self._status: int | None = None

    def kill(self) -> None:
        """End it at once, where it has not ended."""
        if self._status is None:
            self._status = int(self._origin.ask("kill", self._number))

    def wait(self) -> int:
        """Return its exit status once it has ended; below 0 for a signal."""
        if self._status is None:
            self._status = int(self._origin.ask("wait", self._number))
        return self._status


def answer_by_forks(descriptor: int, worker: Callable[[], object]) -> None:
    """Be the process that is forked: each fork calls methods of a worker of its own, made there.

    Whatever the forks should have in common is imported by now, and has done nothing yet: a fork has none of the
    threads that were started before it.
    """
    gc.freeze()  # or the first collection in every fork would copy all that was imported
    pipe = Connection(descriptor)
    answer(pipe, _Origin(pipe, worker))


class _Origin:
    """What the process that is forked can be asked."""

    def __init__(self, pipe: Connection, worker: Callable[[], object]) -> None:
        self._pipe, self._worker = pipe, worker

    def fork(self, log: str) -> int:
        descriptor = reduction.recv_handle(self._pipe)
        own = os.getpid()
        if number := os.fork():
            os.close(descriptor)
            return number
        status = 1
        try:
            end_with(own)
            self._pipe.close()
            _print_to(log)
            answer(Connection(descriptor), self._worker())
            status = 0
        except BaseException:  # nothing may go up from here: it would be the first process twice
            traceback.print_exc()
        os._exit(status)

    def kill(self, number: int) -> int:
        os.kill(number, signal.SIGKILL)
        return self.wait(number)

    def wait(self, number: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def _print_to(log: str) -> None:
    with Path(log).open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
