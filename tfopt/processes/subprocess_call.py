"""Call a function in a child process: for code that may crash or leak, or needs a new TensorFlow."""

import contextlib
import errno
import functools
import logging
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tfopt.error_messages import disk_full_error
from tfopt.errors import AttemptError, MachineError
from tfopt.processes.call_limit import call_within
from tfopt.processes.child_call import read_answer, write_call
from tfopt.processes.exit_status import describe_exit, last_line, last_lines
from tfopt.processes.isolation import is_exposed, limits_of_children
from tfopt.processes.parent_death import PYTHON
from tfopt.processes.preloaded_processes import check_not_ended, fork_call, is_in_run

T = TypeVar("T")
INTERVAL_S = 1.0  # between two looks whether the run was interrupted, without a fork server
LOG_ROOM = 1 << 14  # bytes of free space; with less, the output of a child is incomplete
OUT_OF_MEMORY = "std::bad_alloc"  # the message of a C++ library before it aborts

_calls_here = False  # see `calls_in_this_process`


def run_in_child(
    function: Callable[..., T],
    *arguments: Any,
    doing: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    forwards_log: bool = False,
    writes: Sequence[Path] = (),
) -> T:
    """Call a module-level function in a child process and return its (picklable) result.

    The child is a new Python process, or during a run a fork of one with TensorFlow (`preloaded_processes`). It and its
    own children are killed when this process ends, even when it is killed. Within `calls_in_this_process` there is no
    child, unless it needs other variables. If the step's models are not trusted, the child may only write to the step's
    outputs and to temporary files of its own (`tfopt.processes.isolation`).

    Args:
        function: Imported in the child by its module and name.
        arguments: Picklable arguments.
        doing: Description of the work for the error ("converting to TFLite").
        environment: Environment variables, set before the child imports anything.
        limit_s: Timeout in seconds; None for no limit.
        forwards_log: True to log in this process what the function logged.
        writes: Other folders that the child writes to.

    Raises:
        ComponentError: The one that the function raised.
        AttemptError: If the child died or exceeded the limit, with the last lines of its output.
        MachineError: If the child was killed, or ended for lack of memory.
        TypeError: If the child could not import the function; addressed to the caller's author.
        CallsEnded: If the run was interrupted.
    """
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise TypeError(f"{function.__module__}.{function.__qualname__} is not a function of an importable module")
    if _calls_here and not environment:
        if limit_s is None:
            return function(*arguments)
        return call_within(limit_s, functools.partial(function, *arguments), doing)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        call, answer, log, own = (Path(folder, name) for name in ("call", "answer", "log", "tmp"))
        own.mkdir()
        limits = limits_of_children()
        write_call(call, function, arguments, limits and limits.with_folders(own, *writes))
        try:
            code = _run(call, answer, log, {**os.environ, "TMPDIR": str(own), **(environment or {})}, limit_s)
        except subprocess.TimeoutExpired as error:
            received = f"{doing}: no end after {limit_s:.3g} s\n{last_lines(log)}"
            fix = "see its last lines above, and bound the loops of the model; if it was only slow, allow it more time"
            raise AttemptError(received, "a process that ends in time", fix) from error
        check_not_ended()
        _check_end(code, doing, answer, log)
        worked, result, messages = read_answer(answer)
    for name, level, text in messages if forwards_log else []:
        logging.getLogger(name).log(level, "%s", text)
    if not worked:
        raise result
    return result  # type: ignore[no-any-return]


def _check_end(code: int, doing: str, answer: Path, log: Path) -> None:
    """Raise the error of a child that did not write an answer; see `run_in_child`."""
    if -code == signal.SIGKILL or (code and OUT_OF_MEMORY in last_lines(log)):
        fix = "run it on a machine, or in a pod, with more; the kernel's log (dmesg) names the processes it killed"
        raise MachineError(f"{doing}: the process {describe_exit(code)}{last_line(log)}", "enough memory", fix)
    if code and shutil.disk_usage(log.parent).free < LOG_ROOM:  # the child could not write down why it ended
        full = OSError(errno.ENOSPC, f"{doing}: {os.strerror(errno.ENOSPC)}", str(log.parent))
        raise disk_full_error(full) or full
    if code or not (answer.exists() and answer.stat().st_size):
        received = f"{doing}: the process {describe_exit(code)}{last_line(log)}\n{last_lines(log)}"
        fix = "mend what the lines above name; if it is the code of a library, report it with them and the model"
        raise AttemptError(received, "a process that ends well", fix)


@contextlib.contextmanager
def calls_in_this_process() -> Iterator[None]:
    """Let `run_in_child` call functions directly while the block runs, in a process that may die of them.

    A child that runs a whole component needs no children for its conversions: they would import TensorFlow again.
    """
    global _calls_here
    before, _calls_here = _calls_here, True
    try:
        yield
    finally:
        _calls_here = before


def run_isolated(function: Callable[..., T], *arguments: Any, doing: str, writes: Sequence[Path] = ()) -> T:
    """Call a module-level function and return its result: during a run in a fork, otherwise in this process.

    The process of a command that must not be limited, such as that of `push_model`, calls it in a new process.

    TensorFlow keeps gigabytes of graphs and compiled programs until its process ends, and a run has many steps. Outside
    of a run, another process would import TensorFlow again, and lack classes that the caller registered with Keras.
    Errors are those of `run_in_child`.
    """
    if not is_in_run() and not is_exposed():
        return function(*arguments)
    return run_in_child(function, *arguments, doing=doing, forwards_log=True, writes=writes)


def _run(call: Path, answer: Path, log: Path, environment: Mapping[str, str], limit_s: float | None) -> int:
    if fork := fork_call(environment, log):
        return fork.run(call, answer, limit_s)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*PYTHON, "-m", "tfopt.processes.child_call", call, answer, str(os.getpid())],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            return _wait(process, limit_s)
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], limit_s: float | None) -> int:
    """Wait for the end of a process, or of the run, and return the exit status of the process."""
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    while (remaining := deadline - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(INTERVAL_S, remaining))
        check_not_ended()
    raise subprocess.TimeoutExpired("the call", limit_s or 0)
