"""Fork server: a process that imports a framework once and forks workers.

A fork has its own memory, threads and devices, like any new process, if the server itself runs nothing
(docs/adr/0025-fork-server.md). It can have own values of the environment variables that libraries read when they need
them (`READ_LATE`). All others may have been read by the import, so that another value needs another server.
"""

import gc
import os
import re
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path

from tfopt.processes.isolation import Limits, isolate
from tfopt.processes.parent_death import die_with_parent
from tfopt.processes.worker_process import WorkerClient, WorkerProcess, serve_calls

# TensorFlow parses the flags of XLA before it first compiles or places an operation (parse_flags_from_env.cc).
# NVIDIA's libraries read their variable when TensorFlow first uses a GPU.
READ_LATE = re.compile(
    r"AWS_\w+|COLUMNS|LINES|NVIDIA_TF32_OVERRIDE|PATH|TF_FORCE_GPU_ALLOW_GROWTH|TF_XLA_FLAGS|TFOPT_\w+|TMPDIR"
)


class ForkedWorker(WorkerClient):
    """A worker forked from a process that runs `serve_forks`. It is killed when that process ends."""

    def __init__(self, origin: WorkerProcess, log: Path, limits: Limits | None = None) -> None:
        """Fork the worker, which is limited; raise WorkerDied if the fork server has ended."""
        ours, theirs = socket.socketpair()
        super().__init__(Connection(ours.detach()), log)
        with theirs:
            self._pid = origin.call("fork", str(log), limits, descriptor=theirs.fileno())
        self._origin = origin
        self._status: int | None = None

    def kill(self) -> None:
        """Kill the worker if it is still running."""
        if self._status is None:
            self._status = int(self._origin.call("kill", self._pid))

    def wait(self) -> int:
        """Wait until the worker ends and return its exit status, negative for a signal."""
        if self._status is None:
            self._status = int(self._origin.call("wait", self._pid))
        return self._status


def serve_forks(descriptor: int, worker: Callable[[], object]) -> None:
    """Run the fork server: each fork creates its own worker and calls the worker's methods.

    The caller has imported what the forks share, without running it: a fork does not inherit threads that were started
    before.
    """
    gc.freeze()  # otherwise the first garbage collection in each fork copies all imported objects
    pipe = Connection(descriptor)
    serve_calls(pipe, _Origin(pipe, worker))


def late_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a fork can set.

    >>> late_variables({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "TF_ENABLE_ONEDNN_OPTS": "0"})
    {'TF_XLA_FLAGS': '--tf_xla_auto_jit=2'}
    """
    return {name: value for name, value in variables.items() if READ_LATE.fullmatch(name)}


def replace_late_variables(variables: Mapping[str, str]) -> None:
    """Replace these variables of this process, a fork, by the given ones."""
    for name in late_variables(os.environ):
        del os.environ[name]
    os.environ.update(variables)
    tempfile.tempdir = None  # TMPDIR may have been read


class _Origin:
    """The calls that the fork server accepts."""

    def __init__(self, pipe: Connection, worker: Callable[[], object]) -> None:
        self._pipe, self._worker = pipe, worker

    def fork(self, log: str, limits: Limits | None) -> int:
        descriptor = reduction.recv_handle(self._pipe)
        own = os.getpid()
        if pid := os.fork():
            os.close(descriptor)
            return pid
        status = 1
        try:
            die_with_parent(own)
            self._pipe.close()
            with Path(log).open("ab") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            isolate(limits)
            serve_calls(Connection(descriptor), self._worker())
            status = 0
        except BaseException:  # an exception must not leave this frame, or the fork would continue as the fork server
            traceback.print_exc()
        os._exit(status)

    def kill(self, pid: int) -> int:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def wait(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
