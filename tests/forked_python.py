"""Fork a process that has imported TensorFlow, where tfopt starts a new Python process: it takes seconds less.

The server is forked before the process runs TensorFlow, which does not work in forks of a process in which it ran.
It and its forks end with the process that started it, as new processes do.
"""

import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection, Pipe
from types import SimpleNamespace
from typing import Any

from tfopt.processes import subprocess_call, worker_process
from tfopt.processes.parent_death import PYTHON, die_with_parent


def fork_children() -> None:
    """Let `run_in_child` and `WorkerProcess` of this process fork a server, which is started now."""
    server = _Server()
    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "STDOUT", "TimeoutExpired")}

    def start(words: Sequence[Any], **options: Any) -> _ForkedPython:
        return _ForkedPython(server, words, **options)

    subprocess_call.subprocess = worker_process.subprocess = SimpleNamespace(Popen=start, **names)  # type: ignore[attr-defined]


class _Server:
    """The side of the process that starts children."""

    def __init__(self) -> None:
        self._lock, own = threading.Lock(), os.getpid()
        self._pipe, theirs = Pipe()
        if pid := os.fork():
            theirs.close()
            self.pid = pid
            return
        self._pipe.close()
        _serve(theirs, own)

    def call(self, name: str, *arguments: Any, descriptors: Sequence[int] = ()) -> int | None:
        """Call a function of the server, and return its result."""
        with self._lock:
            self._pipe.send((name, arguments, len(descriptors)))
            for descriptor in descriptors:
                reduction.send_handle(self._pipe, descriptor, 0)
            return self._pipe.recv()


class _ForkedPython:
    """The part of ``subprocess.Popen`` that tfopt uses, for ``python -P -m MODULE WORDS``."""

    def __init__(
        self,
        server: _Server,
        words: Sequence[Any],
        *,
        env: Mapping[str, str],
        stdout: Any,
        pass_fds: Sequence[int] = (),
        **_: Any,
    ) -> None:
        assert tuple(words[:2]) == PYTHON and words[2] == "-m", words
        text = [str(word) for word in words[3:]]
        # The number of the descriptor is another one in the fork, and its parent is the server.
        meaning = {**{str(number): "descriptor" for number in pass_fds}, str(os.getpid()): "parent"}
        special = {index: meaning[word] for index, word in enumerate(text) if word in meaning}
        self._server, self._status = server, None
        pid = server.call("start", text, special, dict(env), descriptors=[stdout.fileno(), *pass_fds])
        assert pid
        self.pid, self._end = pid, os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status; None if the process has not ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("", timeout or 0)
        return status

    def kill(self) -> None:
        """Kill the process if it is running."""
        if self._status is None:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self._status is None and select.select([self._end], [], [], seconds)[0]:
            self._status = self._server.call("wait", self.pid)
            os.close(self._end)
        return self._status


def _serve(pipe: Connection, parent: int) -> None:
    """Start and wait for processes until the parent ends."""
    code = 1
    try:
        os.setsid()  # closing the terminal, or a signal to the group of the parent, must not end it
        die_with_parent(parent)
        while True:
            name, arguments, count = pipe.recv()
            descriptors = [reduction.recv_handle(pipe) for _ in range(count)]
            if name == "start":
                pipe.send(_fork(pipe, descriptors, *arguments))
            else:
                pipe.send(os.waitstatus_to_exitcode(os.waitpid(*arguments, 0)[1]))
            for descriptor in descriptors:
                os.close(descriptor)
    except EOFError:
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _fork(
    pipe: Connection, descriptors: list[int], words: list[str], special: dict[int, str], environment: dict[str, str]
) -> int:
    server = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        pipe.close()
        log, *passed = descriptors
        os.dup2(log, 1), os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(environment)
        values = {"descriptor": str(passed[0]) if passed else "", "parent": str(server)}
        sys.argv = [values[special[index]] if index in special else word for index, word in enumerate(words)]
        if not passed:
            die_with_parent(server)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
