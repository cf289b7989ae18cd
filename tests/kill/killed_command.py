"""Run a command in a fork that is ended before its n-th change of the file system or of TFX's metadata.

The changes are those that Python reports to audit hooks, and calls of the metadata store, each before and after it.
"""

import atexit
import ctypes
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forked_python import fork_children

CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink", "os.truncate", "shutil.move"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PR_SET_CHILD_SUBREAPER = 36
LIMIT_S = 900.0
HANGS = 97  # exit status of a command that did not end within the limit
REACTS_S = 20.0  # within which a signal ends a command


@dataclass(frozen=True)
class Sign:
    """A signal, as a user or a machine sends it.

    Attributes:
        name: Names it in the table.
        number: The signal.
        to_group: It is sent to the process group, and not only to the command's own process.
        code: The exit status of the command; None for any but 0.
    """

    name: str
    number: signal.Signals
    to_group: bool
    code: int | None


SIGNS = (
    Sign("SIGINT", signal.SIGINT, False, 130),
    Sign("SIGINT to the group", signal.SIGINT, True, 130),
    Sign("SIGTERM", signal.SIGTERM, False, 143),
    Sign("SIGHUP", signal.SIGHUP, False, None),
)


@dataclass
class Fork:
    """A forked command.

    Attributes:
        pid: Its process ID.
        log: The file with its output.
        changes: The file with the number of its changes, written at its end.
        sign: Sent by `wait` when the command asks for it: a limited process may not signal others.
        requests: The pipe by which it asks.
        sent: When the signal was sent; None before.
    """

    pid: int
    log: Path
    changes: Path
    sign: Sign | None
    requests: int
    sent: float | None = None

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status, negative for a signal, or `HANGS`."""
        end = os.pidfd_open(self.pid)
        ready, _, _ = select.select([end, self.requests], [], [], LIMIT_S)
        if self.requests in ready and self.sign and os.read(self.requests, 1):
            self.sent = time.time()
            (os.killpg if self.sign.to_group else os.kill)(self.pid, self.sign.number)
        has_ended = bool(select.select([end], [], [], LIMIT_S)[0])
        os.close(end), os.close(self.requests)
        if not has_ended:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status if has_ended else HANGS

    def count(self) -> tuple[int, int]:
        """Return the number of changes that the process made, and of those before its exit functions."""
        total, work = self.changes.read_text().split()
        return int(total), int(work)


def fork_command(
    words: Sequence[str],
    folder: Path,
    name: str,
    kill_at: int = 0,
    *,
    sign: Sign | None = None,
    forks_children: bool = False,
) -> Fork:
    """Start ``tfopt WORDS`` in a fork.

    Args:
        words: The command line.
        folder: The case's folder: the changes below it are counted. Its ``tmp/`` is the temporary folder.
        name: Name of the log, which is not below the folder.
        kill_at: Number of the change before which the process is killed; 0 for none.
        sign: Sent instead, to a command that a process of its own supervises, as on the command line.
        forks_children: Its child processes are forks, which do not import TensorFlow again.
    """
    log, changes = (folder.with_name(f"{folder.name}.{name}.{suffix}") for suffix in ("log", "count"))
    sys.stdout.flush()
    requests, request = os.pipe()
    if pid := os.fork():
        os.close(request)
        return Fork(pid, log, changes, sign, requests)
    code, own = 99, os.getpid()
    try:
        _forget_exit_functions()
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2), os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder / "tmp"), None
        os.chdir(folder)
        if forks_children:
            fork_children()
        counter = _Counter(str(folder) + "/", kill_at, sign, request)
        sys.addaudithook(counter.hear)
        _count_metadata_calls(counter)
        from tfopt import run
        from tfopt.cli.main import main

        sys.argv[1:] = words
        code = run.command() if sign else main(words)
        work = counter.number
        atexit._run_exitfuncs()
        counter.kill_at = 0
        if os.getpid() == own:
            changes.write_text(f"{counter.number} {work}")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 98
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _forget_exit_functions() -> None:
    """Leave those of this process to it: they would remove its temporary folder."""
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


class _Counter:
    def __init__(self, folder: str, kill_at: int, sign: Sign | None, request: int) -> None:
        self.folder, self.kill_at, self.number, self.pid, self.sign = folder, kill_at, 0, os.getpid(), sign
        self.request = request

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """Count a change that is reported to an audit hook."""
        if event == "open":
            name, _, flags = values
            if isinstance(flags, int) and flags & WRITES and isinstance(name, str | bytes):
                self._count_below(name)
        elif event in CHANGES:
            if -1 not in values[1:] and event in ("os.remove", "os.rmdir"):  # relative to an open folder
                self.count()
            else:
                self._count_below(values[0])

    def _count_below(self, name: Any) -> None:
        if str(Path(os.fsdecode(name)).absolute()).startswith(self.folder):
            self.count()

    def count(self) -> None:
        """Count a change, and end the process if it is the one."""
        if self.pid != (os.getppid() if self.sign else os.getpid()):
            return
        self.number += 1
        if self.number != self.kill_at:
            return
        if not self.sign:
            os.kill(self.pid, signal.SIGKILL)
            return
        os.write(self.request, b"x")
        time.sleep(REACTS_S)  # the signal ends it, or the command goes on


def _count_metadata_calls(counter: _Counter) -> None:
    """Count each call of the metadata store before and after it, because its changes are made by native code."""
    if "ml_metadata" not in sys.modules:
        return
    from ml_metadata import MetadataStore

    call: Callable[..., Any] = MetadataStore._call

    def counted(*arguments: Any, **named: Any) -> Any:
        counter.count()
        result = call(*arguments, **named)
        counter.count()
        return result

    MetadataStore._call = counted


def adopt_orphans() -> None:
    """Make this process the parent of processes whose parents end, so that `wait_for_orphans` finds them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def wait_for_orphans(seconds: float = 10) -> bool:
    """Return True when no process that a command started is left; False if one is after some seconds: it is killed."""
    end = time.monotonic() + seconds
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if not pid:
            if time.monotonic() > end:
                _kill_children()
                return False
            time.sleep(0.01)


def _kill_children() -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        process.kill()
        process.wait(5)
