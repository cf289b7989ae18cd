"""Call a function in a child process: for code that may crash or leak, or needs a new TensorFlow.

The child is a plain ``python -m tfopt.processes.subprocess_call``. The spawn method of `multiprocessing` would run the
caller's own script again.
"""

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tfopt.errors import ComponentError, MachineError, first_line, machine_error
from tfopt.processes.parent_death import PYTHON, die_with_parent

T = TypeVar("T")
OUT_OF_MEMORY = "std::bad_alloc"  # the message of a C++ library before it aborts


def run_in_child(
    function: Callable[..., T],
    *arguments: Any,
    doing: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> T:
    """Call a module-level function in a new Python process and return its (picklable) result.

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
        # The search path comes first: unpickling the rest may need it.
        call.write_bytes(pickle.dumps(sys.path) + pickle.dumps((function.__module__, function.__qualname__, arguments)))
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*PYTHON, "-m", "tfopt.processes.subprocess_call", call, answer, str(os.getpid())],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired as error:
                raise ComponentError(
                    f"{doing}: no end after {limit_s:g} s\n{last_lines(log)}",
                    "a process that ends in time",
                    "see its last lines above; allow it more time if it was only slow",
                ) from error
            finally:
                process.kill()
                process.wait()
        if -code == signal.SIGKILL or (code and OUT_OF_MEMORY in last_lines(log)):
            raise MachineError(
                f"{doing}: the process {describe_exit(code)}{_last_line(log)}",
                "enough memory",
                "run it on a machine, or in a pod, with more; the kernel's log (dmesg) names the processes it killed",
            )
        if code or not answer.exists():
            raise ComponentError(
                f"{doing}: the process {describe_exit(code)}{_last_line(log)}\n{last_lines(log)}",
                "a process that ends well",
                "see the last lines that it printed",
            )
        worked, result = pickle.loads(answer.read_bytes())
    if not worked:
        raise result
    return result  # type: ignore[no-any-return]


def describe_exit(code: int) -> str:
    """Describe an exit status.

    >>> describe_exit(-9)
    'was killed by SIGKILL'
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log file."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 500 * count))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-count:])


def _last_line(log: Path) -> str:
    """Return the last nonempty line: most often the reason, and some callers show one line of the error only."""
    lines = [line.strip() for line in last_lines(log).splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def main(call: Path, answer: Path, parent: int) -> None:
    """Run the child: call the function and write its result atomically."""
    die_with_parent(parent)
    with call.open("rb") as stream:
        sys.path[:] = pickle.load(stream)
        module, name, arguments = pickle.load(stream)
    try:
        result = True, getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        lacked = machine_error(error)
        if lacked is None and not isinstance(error, ComponentError):
            traceback.print_exc()
            sys.exit(f"{type(error).__name__}: {first_line(error)}")  # printed last, for `_last_line`
        result = False, lacked or error
    part = answer.with_suffix(".partial")
    part.write_bytes(pickle.dumps(result))
    part.rename(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
