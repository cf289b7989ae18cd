"""Call a function in a child process: for code that may crash or leak, or needs a new TensorFlow."""

import errno
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tfopt.errors import ComponentError, MachineError, disk_full_error
from tfopt.processes.call_server import fork_call
from tfopt.processes.child_call import read_answer, write_call
from tfopt.processes.exit_status import describe_exit, last_line, last_lines
from tfopt.processes.parent_death import PYTHON

T = TypeVar("T")
LOG_ROOM = 1 << 14  # bytes of free space; with less, the output of a child is incomplete
OUT_OF_MEMORY = "std::bad_alloc"  # the message of a C++ library before it aborts


def run_in_child(
    function: Callable[..., T],
    *arguments: Any,
    doing: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> T:
    """Call a module-level function in a child process and return its (picklable) result.

    The child is a new Python process, or during a run a fork of one that has imported TensorFlow (`call_server`).

    The child and its own children are killed when this process ends, even when it is killed.

    Args:
        function: Imported in the child by its module and name.
        arguments: Picklable arguments.
        doing: Description of the work for the error ("converting to TFLite").
        environment: Environment variables, set before the child imports anything.
        limit_s: Timeout in seconds; None for no limit.

    Raises:
        ComponentError: The one that the function raised, or one with the last lines of output if the child died or
            exceeded the limit.
        MachineError: If the child was killed, or ended for lack of memory.
        TypeError: If the child could not import the function; addressed to the caller's author.
    """
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise TypeError(f"{function.__module__}.{function.__qualname__} is not a function of an importable module")
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        call, answer, log = (Path(folder, name) for name in ("call", "answer", "log"))
        write_call(call, function, arguments)
        try:
            code = _run(call, answer, log, {**os.environ, **(environment or {})}, limit_s)
        except subprocess.TimeoutExpired as error:
            raise ComponentError(
                f"{doing}: no end after {limit_s:g} s\n{last_lines(log)}",
                "a process that ends in time",
                "see its last lines above; allow it more time if it was only slow",
            ) from error
        if -code == signal.SIGKILL or (code and OUT_OF_MEMORY in last_lines(log)):
            raise MachineError(
                f"{doing}: the process {describe_exit(code)}{last_line(log)}",
                "enough memory",
                "run it on a machine, or in a pod, with more; the kernel's log (dmesg) names the processes it killed",
            )
        if code and shutil.disk_usage(folder).free < LOG_ROOM:  # the child could not write down why it ended
            full = OSError(errno.ENOSPC, f"{doing}: {os.strerror(errno.ENOSPC)}", folder)
            raise disk_full_error(full) or full
        if code or not answer.exists():
            raise ComponentError(
                f"{doing}: the process {describe_exit(code)}{last_line(log)}\n{last_lines(log)}",
                "a process that ends well",
                "see the last lines that it printed",
            )
        worked, result = read_answer(answer)
    if not worked:
        raise result
    return result  # type: ignore[no-any-return]


def _run(call: Path, answer: Path, log: Path, environment: Mapping[str, str], limit_s: float | None) -> int:
    """Run the child to its end and return its exit status."""
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
            return process.wait(limit_s)
        finally:
            process.kill()
            process.wait()
