"""Work in a child process, for what may crash, leak, or must start from a clean TensorFlow.

A plain ``python -m tfopt.processes.subprocess_call``, not `multiprocessing`: its spawn method would run the caller's
own script again.
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

from tfopt.errors import ComponentError, first_line, lacking
from tfopt.processes.parent_death import end_with

T = TypeVar("T")


def run_in_child(
    function: Callable[..., T],
    *arguments: Any,
    doing: str,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> T:
    """Call a module-level function in a fresh Python process and return its (picklable) result.

    The process ends with this one, even when this one is killed, and so do those that it started so in turn.

    Args:
        function: Found by the child by its import path.
        arguments: Picklable.
        doing: What it does, for the error ("converting to TFLite").
        environment: Variables to set before anything is imported there.
        limit_s: How long it may take; as long as it likes when not given.

    Raises:
        ComponentError: The child's own, or one with the last lines it printed when it died or was stopped.
        TypeError: When the child could not find the function; addressed to the caller's author.
    """
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise TypeError(f"{function.__module__}.{function.__qualname__} is not a function of an importable module")
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        call, answer, log = (Path(folder, name) for name in ("call", "answer", "log"))
        # The search path goes first: what follows may need it to be unpickled.
        call.write_bytes(pickle.dumps(sys.path) + pickle.dumps((function.__module__, function.__qualname__, arguments)))
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "tfopt.processes.subprocess_call", call, answer, str(os.getpid())],
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
        if code or not answer.exists():
            raise ComponentError(
                f"{doing}: the process {how_it_ended(code)}{_last_words(log)}\n{last_lines(log)}",
                "a process that ends well",
                "see the last lines that it printed; when it was killed, the machine may be short of memory",
            )
        worked, result = pickle.loads(answer.read_bytes())
    if not worked:
        raise result
    return result  # type: ignore[no-any-return]


def how_it_ended(code: int) -> str:
    """An exit status in words.

    >>> how_it_ended(-9)
    'was killed by SIGKILL'
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def last_lines(log: Path, count: int = 15) -> str:
    """The end of what a process printed."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 500 * count))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-count:])


def _last_words(log: Path) -> str:
    """The last line that says something: where only one line of the error is shown, it is most often the reason."""
    said = [line.strip() for line in last_lines(log).splitlines() if line.strip()]
    return f": {said[-1][:300]}" if said else ""


def main(call: Path, answer: Path, parent: int) -> None:
    """Be the child: make the call and leave the answer whole."""
    end_with(parent)
    with call.open("rb") as stream:
        sys.path[:] = pickle.load(stream)
        module, name, arguments = pickle.load(stream)
    try:
        result = True, getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        lacked = lacking(error)
        if lacked is None and not isinstance(error, ComponentError):
            traceback.print_exc()
            sys.exit(f"{type(error).__name__}: {first_line(error)}")  # comes last, for `_last_words`
        result = False, lacked or error
    part = answer.with_suffix(".partial")
    part.write_bytes(pickle.dumps(result))
    part.rename(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
