"""Run a command in a fork that kills itself before its n-th change of the file system or of TFX's metadata.

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


@dataclass
class Fork:
    """A forked command.

    Attributes:
        pid: Its process ID.
        log: The file with its output.
        changes: The file with the number of its changes, written at its end.
    """

    pid: int
    log: Path
    changes: Path

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status, negative for a signal, or `HANGS`."""
        end = os.pidfd_open(self.pid)
        has_ended = bool(select.select([end], [], [], LIMIT_S)[0])
        os.close(end)
        if not has_ended:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status if has_ended else HANGS

    def count(self) -> int:
        """Return the number of changes that the process made."""
        return int(self.changes.read_text())


def fork_command(
    words: Sequence[str], folder: Path, name: str, kill_at: int = 0, *, forks_children: bool = False
) -> Fork:
    """Start ``tfopt WORDS`` in a fork.

    Args:
        words: The command line.
        folder: The case's folder: the changes below it are counted. Its ``tmp/`` is the temporary folder.
        name: Name of the log, which is not below the folder.
        kill_at: Number of the change before which the process is killed; 0 for none.
        forks_children: Its child processes are forks, which do not import TensorFlow again.
    """
    log, changes = (folder.with_name(f"{folder.name}.{name}.{suffix}") for suffix in ("log", "count"))
    sys.stdout.flush()
    if pid := os.fork():
        return Fork(pid, log, changes)
    code = 99
    try:
        _forget_exit_functions()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2), os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder / "tmp"), None
        os.chdir(folder)
        if forks_children:
            fork_children()
        counter = _Counter(str(folder) + "/", kill_at)
        sys.addaudithook(counter.hear)
        _count_metadata_calls(counter)
        from tfopt.cli.main import main

        code = main(words)
        atexit._run_exitfuncs()
        counter.kill_at = 0
        changes.write_text(str(counter.number))
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
    def __init__(self, folder: str, kill_at: int) -> None:
        self.folder, self.kill_at, self.number, self.pid = folder, kill_at, 0, os.getpid()

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
        if os.getpid() != self.pid:
            return
        self.number += 1
        if self.number == self.kill_at:
            os.kill(self.pid, signal.SIGKILL)


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
