"""The child's side of `run_in_child`: one call, whose arguments and result are pickled in files.

The child is a plain ``python -m tfopt.processes.child_call``, or a fork of one of `preloaded_processes`. The spawn
method of `multiprocessing` would run the caller's own script again.
"""

import faulthandler
import importlib
import logging
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

from tfopt.error_messages import first_line, machine_error
from tfopt.errors import ComponentError
from tfopt.processes.isolation import Limits, isolate
from tfopt.processes.parent_death import die_with_parent
from tfopt.processes.startup import speed_up_imports

Message = tuple[str, int, str]  # logger, level, text


def write_call(file: Path, function: Callable[..., Any], arguments: tuple[Any, ...], limits: Limits | None) -> None:
    """Write a call of a function of an importable module in a process with these limits, for `perform`."""
    call = function.__module__, function.__qualname__, arguments
    # The search path comes first: unpickling the rest may need it.
    file.write_bytes(pickle.dumps((sys.path, Path.cwd(), limits)) + pickle.dumps(call))


def read_answer(file: Path) -> tuple[bool, Any, list[Message]]:
    """Return whether the call returned, its result or the `ComponentError` that it raised, and what it logged."""
    return pickle.loads(file.read_bytes())  # type: ignore[no-any-return]


def perform(call: Path, answer: Path) -> None:
    """Make a call and write its result, or the `ComponentError` that it raised, as the last thing.

    The files are opened before the process is limited: a limited one cannot write to those of another call, whose
    content is a pickle, which runs code when it is read.

    Raises:
        SystemExit: If the call raised another exception; the traceback is printed. Or if a file cannot be written.
    """
    faulthandler.enable(2)  # a crash of a library writes where it was
    try:
        with answer.open("wb") as output:
            with call.open("rb") as stream:
                sys.path[:], folder, limits = pickle.load(stream)
                os.chdir(folder)
                isolate(limits)
                module, name, arguments = pickle.load(stream)
            output.write(_result(module, name, arguments))
    except OSError as error:  # of these files
        sys.exit(f"temporary files: {first_line(error)}")


def _result(module: str, name: str, arguments: tuple[Any, ...]) -> bytes:
    """Make a call and return the pickle for `read_answer`."""
    collector = BufferingHandler(sys.maxsize)  # what tfopt logs otherwise only appears in the child's own output
    log = logging.getLogger("tfopt")
    log.addHandler(collector)
    log.setLevel(logging.INFO)
    try:
        result = True, getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        lacked = machine_error(error)
        if lacked is None and not isinstance(error, ComponentError):
            traceback.print_exc()
            sys.exit(f"{type(error).__name__}: {first_line(error)}")  # printed last, for `last_line`
        result = False, lacked or error
        result[1].__cause__ = result[1].__context__ = None  # libraries make them be pickled; TensorFlow's cannot
    messages = [(record.name, record.levelno, record.getMessage()) for record in collector.buffer]
    return pickle.dumps((*result, messages))


if __name__ == "__main__":
    speed_up_imports()
    die_with_parent(int(sys.argv[3]))
    perform(Path(sys.argv[1]), Path(sys.argv[2]))
