"""Processes that have imported TensorFlow, from which `run_in_child` and `start_worker` fork during a run.

The servers import it once for each environment and run nothing else, so a fork is as independent as a new process: its
crash, its leaks or its lack of memory end the fork only.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tfopt.processes.child_call import perform
from tfopt.processes.fork_server import ForkedWorker, late_variables, replace_late_variables, serve_forks
from tfopt.processes.isolation import Limits
from tfopt.processes.startup import speed_up_imports
from tfopt.processes.worker_process import WorkerClient, WorkerDied, WorkerProcess

# Modules that most calls import; those of tfopt and their dependencies took each call a tenth of a second.
PRELOADED = (
    "tensorflow",
    "keras",
    "tfopt.component",
    "tfopt.execution.parity_check",
    "tfopt.keras_models",
    "tfopt.measurement.parity",
    "tfopt.runtimes.preprocessed",
    "tfopt.runtimes.saved_model",
    "tfopt.serving.warm_up",
)
MOST_SERVERS = 3  # each uses some 400 MB; environments differ in few variables, such as TF_USE_LEGACY_KERAS
# Variables that libraries set when they are imported, with their values; an import in a server sets them as well.
SET_BY_IMPORTS = {
    ("ENABLE_RUNTIME_UPTIME_TELEMETRY", "1"),
    ("HDF5_PLUGIN_PATH", "disable"),
    ("KMP_DUPLICATE_LIB_OK", "True"),
    ("KMP_INIT_AT_FORK", "FALSE"),
    ("TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK", "true"),
    ("TF2_BEHAVIOR", "1"),
    ("TPU_ML_PLATFORM", "Tensorflow"),
}
WITHOUT_EFFECT = {"PYTEST_CURRENT_TEST", "TPU_ML_PLATFORM_VERSION", "_MLFLOW_TELEMETRY_SESSION_ID"}

_lock = threading.RLock()  # steps may run in threads
_open: "PreloadedProcesses | None" = None
_runs = 0  # open contexts of runs


@contextlib.contextmanager
def preloading(*, is_run: bool = False, will_fork: bool = False) -> Iterator[None]:
    """Fork children from servers until the context ends; within another such context, use its servers.

    A run (``is_run``) does its work in forks wherever it can (`run_isolated`). With ``will_fork`` a server may be
    started before it is needed (`start_ahead`).
    """
    global _open, _runs
    with _lock:
        mine = PreloadedProcesses(will_fork) if _open is None else None
        _open = _open or mine
        _runs += is_run
    try:
        yield
    finally:
        with _lock:
            _runs -= is_run
            if _open and is_run:
                _open.is_ended = False  # the threads of the run have ended
            _open = None if mine else _open
        if mine:
            mine.close()


def is_in_run() -> bool:
    """Return True within the `preloading` of a run."""
    return _runs > 0


class CallsEnded(BaseException):
    """The run was interrupted: a thread of it starts no further child process, and nothing but cleanup follows."""


def end_calls() -> None:
    """Kill the forks of the run; threads that wait for one, or start another, raise `CallsEnded`."""
    if servers := _open:
        servers.end()


def check_not_ended() -> None:
    """Raise `CallsEnded` after `end_calls`."""
    if _open and _open.is_ended:
        raise CallsEnded


def start_ahead() -> None:
    """Start the first server of a run whose steps will fork, without waiting for it.

    It imports TensorFlow while the first steps work. They call this if they measure no time.
    """
    with _lock, contextlib.suppress(OSError):  # the first fork tries again
        if _open and not _open.is_ended:
            _open.start_ahead()


def fork_call(environment: Mapping[str, str], log: Path, limits: Limits | None = None) -> "ForkedCall | None":
    """Return a fork of the server with this environment; None if no servers are open, or it cannot be started.

    Raises:
        CallsEnded: If the run was interrupted.
    """
    with _lock:
        check_not_ended()
        try:
            return _open.fork(environment, log, limits) if _open else None
        except (WorkerDied, OSError):  # a new process reports why
            check_not_ended()
            return None


def start_worker(
    module: str, *, log: Path, environment: Mapping[str, str], limits: Limits | None = None
) -> WorkerClient:
    """Start a worker in a process of its own, which is limited: during a run a fork, else a new process.

    The module has a class ``Worker`` and, as a program, serves the calls of one (see `WorkerProcess`).
    """
    if fork := fork_call({**os.environ, **environment}, log, limits):
        fork.call("use_worker", module)
        return fork
    return WorkerProcess(module, log=log, environment=environment, limits=limits)


class PreloadedProcesses:
    """The servers of a run, one for each environment, the last used one last."""

    is_ended = False

    def __init__(self, will_fork: bool = False) -> None:
        """Start no server yet; `start_ahead` will do so if there will be forks."""
        self._will_fork = will_fork
        self._folder = tempfile.TemporaryDirectory(prefix="tfopt-")
        self._servers: dict[frozenset[tuple[str, str]], WorkerProcess] = {}
        self._forks: dict[frozenset[tuple[str, str]], list[ForkedCall]] = {}

    def fork(self, environment: Mapping[str, str], log: Path, limits: Limits | None = None) -> "ForkedCall":
        """Fork the server with this environment; start it if there is none, or it has ended."""
        late, key = late_variables(environment), _server_key(environment)
        server = self._servers.pop(key, None)
        if server is None or server.has_ended():
            for idle in list(self._servers)[: max(0, len(self._servers) + 1 - MOST_SERVERS)]:  # not used for longest
                if all(fork.is_finished for fork in self._forks.get(idle, [])):
                    self._servers.pop(idle).__exit__()
            server = self._start(environment)
        self._servers[key] = server
        if self.is_ended:  # meanwhile
            server.kill()
        fork = ForkedCall(server, log, limits)
        fork.call("replace_variables", late)
        self._forks[key] = [*(other for other in self._forks.get(key, []) if not other.is_finished), fork]
        return fork

    def start_ahead(self) -> None:
        """Start the server with the environment of this process, if there will be forks and no server was started."""
        if self._will_fork and not self._servers:
            self._servers[_server_key(os.environ)] = self._start(os.environ)

    def end(self) -> None:
        """Kill all servers, and with them all forks, also while a thread waits for one of them."""
        self.is_ended = True
        for server in list(self._servers.values()):
            server.kill()

    def close(self) -> None:
        """End all servers, and with them all forks."""
        for server in self._servers.values():
            server.__exit__()
        self._folder.cleanup()

    def _start(self, environment: Mapping[str, str]) -> WorkerProcess:
        log = Path(tempfile.mkstemp(dir=self._folder.name, suffix=".log")[1])
        return WorkerProcess("tfopt.processes.preloaded_processes", log=log, environment=environment)


def _server_key(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the variables that forks of the same server have in common."""
    replaced = late_variables(environment).keys() | WITHOUT_EFFECT
    return frozenset(item for item in environment.items() if item[0] not in replaced) - SET_BY_IMPORTS


class ForkedCall(ForkedWorker):
    """A forked process that makes one call and ends, or serves the calls of a worker."""

    is_finished = False

    def __exit__(self, *_: object) -> None:
        """Kill the process if it is running."""
        self.is_finished = True
        super().__exit__()

    def run(self, call: Path, answer: Path, limit_s: float | None) -> int:
        """Return the exit status of the call, negative for a signal; kill it and raise TimeoutExpired at the limit."""
        try:
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                ends: list[Connection | int] = [self._pipe]
                with contextlib.suppress(OSError):  # not every kernel has it
                    end_of_process = os.pidfd_open(self._pid)  # a child of the process may keep the pipe open
                    stack.callback(os.close, end_of_process)
                    ends.append(end_of_process)
                self._pipe.send(("run", (call, answer)))
                if not wait(ends, limit_s):
                    raise subprocess.TimeoutExpired("the call", limit_s or 0)
            return self.wait()
        except WorkerDied:  # the server was killed, and with it the process
            return -signal.SIGKILL
        finally:
            with contextlib.suppress(WorkerDied):
                self.__exit__()


class _Caller:
    """The worker of a fork: it makes one call, or becomes another worker."""

    _worker: object = None

    def __getattr__(self, name: str) -> Any:
        """Return a method of the other worker."""
        return getattr(self._worker, name)

    def replace_variables(self, late: Mapping[str, str]) -> None:
        """Replace the variables of `READ_LATE`, which are those of the call that started the server."""
        replace_late_variables(late)

    def use_worker(self, module: str) -> None:
        """Answer all further calls with the worker of a module."""
        self._worker = importlib.import_module(module).Worker()

    def run(self, call: Path, answer: Path) -> None:
        """Make the call and end this process with its exit status."""
        status = 0
        try:
            perform(call, answer)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException:  # nothing may return to the fork server: the client waits for the end of this process
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    speed_up_imports()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # the call that needs it reports it
            importlib.import_module(name)
    serve_forks(int(sys.argv[1]), _Caller)
