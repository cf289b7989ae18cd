"""Small components for tests of the machinery, found by any process as ``tests.toys:NAME``."""

import os
import signal
from pathlib import Path
from typing import Annotated, Literal

from tfopt.artifacts import Examples, Files, KerasModel, Model, Report, TFLiteModel
from tfopt.artifacts.staging import link_tree
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError


@component(image="tf")
def count(
    data: Input[Files],
    report: Output[Report],
    *,
    scale: Annotated[float, Between(0, 10)] = 1.0,
    unit: Literal["bytes", "lines"] = "bytes",
    loud: bool = False,
    notes: list[str] = [],  # noqa: B006
    limit: Annotated[int, Between(1)] | None = None,
) -> None:
    """Count what is in a file.

    Args:
        data: The file.
        report: The count.
        scale: A factor.
        unit: What is counted.
        loud: Whether to shout.
        notes: Kept as they are.
        limit: The most that is counted.
    """
    text = data.path.read_bytes()
    found = len(text) if unit == "bytes" else text.count(b"\n")
    report.write({"count": min(found, limit or found) * scale, "loud": loud, "notes": notes})
    report.metadata["count"] = found


@component(image="tf", cache="local")
def add(
    reports: Input[list[Report]], total: Output[Report], extra: Input[Report] | None = None, *, start: int = 0
) -> None:
    """Add counts.

    Args:
        reports: The counts.
        total: Their sum.
        extra: One more, if wanted.
        start: Where to start.
    """
    parts = [report.read()["count"] for report in [*reports, *([extra] if extra else [])]]
    total.write({"count": start + sum(parts), "parts": parts})


@component(image="tf")
def fail(
    data: Input[Files], report: Output[Report], *, how: Literal["refuse", "crash", "kill", "leave", "forget"] = "refuse"
) -> None:
    """Fail in a chosen way, after half of the work.

    Args:
        data: Anything.
        report: Never whole.
        how: In which way.
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


@component(image="tf", cache="never")
def note(data: Input[Files], report: Output[Report], *, book: str) -> None:
    """Write a line into a book.

    Args:
        data: Anything.
        report: How many lines there are now.
        book: A file outside.
    """
    with Path(book).open("a+") as stream:
        stream.write("noted\n")
        stream.seek(0)
        report.write({"lines": len(stream.readlines())})


@component(image="tf")
def two(data: Input[Files], first: Output[Report], second: Output[Report]) -> None:
    """Write two reports, while somebody else takes the place of the second.

    Args:
        data: Anything.
        first: Whole.
        second: Whole, and too late.
    """
    first.write({"a": 1})
    second.write({"a": 2})
    taken = second.path.with_name("second")
    taken.mkdir()
    (taken / "theirs").write_text("theirs")


@component(image="tf")
def copy_model(model: Input[Model], copied: Output[Model], *, note: str = "as it was") -> None:
    """Pass a model on.

    Args:
        model: Any.
        copied: The same.
        note: Kept in the card.
    """
    link_tree(model.path, copied.path)
    copied.metadata["note"] = note


@component(image="tf")
def take_keras(model: Input[KerasModel], examples: Input[Examples], taken: Output[TFLiteModel]) -> None:
    """Take a Keras model.

    Args:
        model: A Keras model.
        examples: Examples.
        taken: Never made.
    """
