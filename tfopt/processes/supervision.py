"""Run a program in a forked process whose sudden death this process notices and describes.

Code that the program runs may end its process without an exception: `os._exit`, a segmentation fault, `abort` for lack
of memory, the kernel's out-of-memory killer. The program records what it works on in memory that both processes share.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypedDict

from tfopt.processes.exit_status import innermost_frame
from tfopt.processes.parent_death import die_with_parent

FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}


class Work(TypedDict, total=False):
    """Names and outputs of the components that a program runs; in the end, how it ended."""

    component: str
    outputs: list[str]
    returned: int
    raised: bool


_record: int | None = None  # file descriptor, in the program's process
_works: dict[int, list[Work]] = {}  # of each thread, the innermost last
_lock = threading.Lock()
_owner = 0  # ID of the program's process: its own forks record nothing


@dataclass
class Death:
    """The end of a program that neither returned nor raised an exception."""

    status: int
    work: Work  # given to `recorded_work` last; empty if it had not begun
    line: str  # the user's line that crashed, as ``FILE, line N, in FUNCTION``; empty if unknown


def run_supervised(program: Callable[[], int]) -> "int | Death":
    """Run a program in a fork of this process, which must have one thread, and return its exit code.

    Signals sent to this process are passed on. The program's process is killed when this one is. The function returns
    in both processes: in the program's with the code that the program returned.
    """
    record, crash = os.memfd_create("record"), os.memfd_create("crash")
    awaited = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        die_with_parent(parent)
        faulthandler.enable(crash)
        return _run_recorded(program, record)
    try:
        status = _wait(child, awaited)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    text = os.pread(record, 1 << 20, 0)
    end: Work = json.loads(text) if text.strip() else {}
    if "returned" in end:  # a crash of a library after that, when the interpreter ends, harms nothing
        return end["returned"]
    if end.get("raised") and status >= 0:
        return status
    return Death(status, end, innermost_frame(os.pread(crash, 1 << 20, 0).decode(errors="replace")))


@contextlib.contextmanager
def recorded_work(description: Work) -> Iterator[None]:
    """Record what this process works on until the context ends, for the process that supervises it, if any.

    Of contexts within each other the innermost one counts; threads may have contexts of their own at the same time.
    """
    thread = threading.get_ident()
    with _lock:
        _works.setdefault(thread, []).append(description)
        _write(_joined_works())
    try:
        yield
    finally:
        with _lock:
            _works[thread].pop()
            _write(_joined_works())


def _joined_works() -> Work:
    """Return the description of what all threads work on: of their texts a list in words, of their lists the union."""
    current = [works[-1] for works in _works.values() if works]
    if not current:
        return {}
    names, outputs = [work["component"] for work in current], [work["outputs"] for work in current]
    return {"component": ", ".join(names), "outputs": [output for listed in outputs for output in listed]}


def _run_recorded(program: Callable[[], int], record: int) -> int:
    global _record, _owner
    _record, _owner = record, os.getpid()
    try:
        code = program()
    except BaseException:
        _write({"raised": True})
        raise
    _write({"returned": code})
    return code


def _wait(child: int, awaited: set[signal.Signals]) -> int:
    """Pass on signals until the child ends, and return its exit status."""
    while True:
        received = signal.sigwaitinfo(awaited)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code <= 0:  # from a process; the terminal sends its own to all processes
                os.kill(child, received.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _write(content: Work) -> None:
    if _record is not None and _owner == os.getpid():
        text = json.dumps(content).encode()
        os.pwrite(_record, text.ljust(os.fstat(_record).st_size), 0)
