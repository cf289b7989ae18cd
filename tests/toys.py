"""Small components for tests of the framework, which any process can import as ``tests.toys:NAME``."""

import logging
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

from tfopt.artifacts import Examples, Files, KerasModel, Model, Report, TFLiteModel
from tfopt.component import Between, Input, Output, component
from tfopt.errors import AttemptError, ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.storage.staging import link_tree


@component(image="tf")
def count(
    data: Input[Files],
    report: Output[Report],
    *,
    scale: Annotated[float, Between(0, 10)] = 1.0,
    unit: Literal["bytes", "lines"] = "bytes",
    loud: bool = False,
    notes: tuple[str, ...] = (),
    limit: Annotated[int, Between(1)] | None = None,
) -> None:
    """Count bytes or lines of a file.

    Args:
        data: The file.
        report: The count.
        scale: A factor.
        unit: The unit of the count.
        loud: A flag.
        notes: Any texts.
        limit: The largest count.
    """
    text = data.path.read_bytes()
    total = len(text) if unit == "bytes" else text.count(b"\n")
    report.write({"count": min(total, limit or total) * scale, "loud": loud, "notes": notes})
    report.metadata["count"] = total


@component(image="tf", cache="local")
def add(
    reports: Input[list[Report]], total: Output[Report], extra: Input[Report] | None = None, *, start: int = 0
) -> None:
    """Add counts.

    Args:
        reports: The counts.
        total: Their sum.
        extra: Another count.
        start: Start value.
    """
    parts = [report.read()["count"] for report in [*reports, *([extra] if extra else [])]]
    total.write({"count": start + sum(parts), "parts": parts})


@component(image="tf")
def fail(
    data: Input[Files], report: Output[Report], *, how: Literal["refuse", "crash", "kill", "leave", "forget"] = "refuse"
) -> None:
    """Write half of the output and fail in the given way.

    Args:
        data: Anything.
        report: Never complete.
        how: The way to fail.
    """
    (report.path / "half").write_text("half")
    if how == "refuse":
        raise ComponentError(str(data.path), "something else", "give something else")
    if how == "crash":
        raise RuntimeError("a bug")
    if how == "leave":
        raise SystemExit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@component(image="tf")
def hold(
    data: Input[Files],
    report: Output[Report],
    *,
    seconds: Annotated[float, Between(0)] = 0.0,
    megabytes: Annotated[int, Between(0)] = 0,
    disk: Annotated[int, Between(0)] = 0,
) -> None:
    """Write half of the output, use memory and disk for some time, and write the other half.

    Args:
        data: The file whose bytes are counted.
        report: The count.
        seconds: Duration.
        megabytes: Memory.
        disk: Megabytes of a temporary file.
    """
    (report.path / "half").write_text("half")
    content = b"x" * (megabytes << 20)
    with tempfile.NamedTemporaryFile() as temporary:  # without a name it would not count as used by the container
        for _ in range(disk):
            temporary.write(b"x" * (1 << 20))
        temporary.flush()
        time.sleep(seconds)
    report.write({"count": len(data.path.read_bytes()), "megabytes": len(content) >> 20})


@component(image="tf", cache="never")
def note(data: Input[Files], report: Output[Report], *, book: str) -> None:
    """Append a line to a file outside of the artifacts.

    Args:
        data: Anything.
        report: The number of lines after that.
        book: The file.
    """
    with Path(book).open("a+") as stream:
        stream.write("noted\n")
        stream.seek(0)
        report.write({"lines": len(stream.readlines())})


@component(image="tf")
def two(data: Input[Files], first: Output[Report], second: Output[Report]) -> None:
    """Write two reports while another process creates the folder of the second.

    Args:
        data: Anything.
        first: Complete.
        second: Complete, but its folder exists.
    """
    first.write({"a": 1})
    second.write({"a": 2})
    folder = second.path.parent.with_name("second")
    folder.mkdir()
    (folder / "theirs").write_text("theirs")


@component(image="tf")
def copy_model(model: Input[Model], copied: Output[Model], *, note: str = "as it was") -> None:
    """Copy a model.

    Args:
        model: Any model.
        copied: The copy.
        note: A text for the model card.
    """
    link_tree(model.path, copied.path)
    copied.metadata["note"] = note


@component(image="tf")
def take_keras(model: Input[KerasModel], examples: Input[Examples], exported: Output[TFLiteModel]) -> None:
    """Declare a Keras model as input.

    Args:
        model: A Keras model.
        examples: Examples.
        exported: Never written.
    """


@component(image="tf", on_failure=True)
def attempt(model: Input[Model], made: Output[Model], *, refuses: bool = False) -> None:
    """Make a model if the file next to it exists.

    Args:
        model: The model to copy.
        made: The copy.
        refuses: Refuse the model, instead of failing like a process that crashed.
    """
    if not model.path.with_name("ready").exists():
        error = ComponentError if refuses else AttemptError
        raise error("not ready", "a file named ready", "write it")
    shutil.copytree(model.path, made.path, dirs_exist_ok=True)


@component(image="tf", model_signature=True)
def write_elsewhere(model: Input[Model], report: Output[Report], *, folder: str) -> None:
    """Try to write outside of the output, in this process and in a child.

    Args:
        model: Any model.
        report: Which of the files could be written.
        folder: The other folder; ``warn`` to fail with a bug that a library logs.
    """
    if folder == "warn":
        logging.getLogger("library").warning("about to fail")
        raise RuntimeError("failed")
    files = {"self": Path(folder, "self"), "own": report.path / "file"}
    written = {name: can_write(file) for name, file in files.items()}
    report.write({**written, "child": run_in_child(can_write, Path(folder, "child"), doing="writing")})


def can_write(file: Path) -> bool:
    """Return whether the file can be written."""
    try:
        file.write_text("text")
    except PermissionError:
        return False
    return True
