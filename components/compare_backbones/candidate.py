"""What is found out about one backbone, as it goes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tfopt.artifacts import Model
from tfopt.components.compare_backbones.backbones import Backbone
from tfopt.errors import ComponentError

T = TypeVar("T")


@dataclass
class Entry:
    """One backbone.

    Attributes:
        module: Its Python file.
        place: Where its models are made.
        error: Why it dropped out.
        untrained: Why it was not trained, where it was not.
        counted: What `inspect_model` found.
        speed: Its row of ``benchmark.json``, by format; a row with only an ``error`` where there is none.
        trained: What it learnt.
        train_seconds: How long that took.
        quality: Its row of ``evaluation.json``.
    """

    backbone: Backbone
    module: Path
    place: Path
    error: str | None = None
    untrained: str | None = None
    counted: Mapping[str, Any] = field(default_factory=dict)
    speed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    trained: Model | None = None
    train_seconds: float | None = None
    quality: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it was asked for."""
        return str(self.backbone)

    @property
    def fastest(self) -> str | None:
        """The format in which one example takes the least time; None when none could be measured."""
        whole = {kind: row["latency"] for kind, row in self.speed.items() if row.get("latency")}
        return min(whole, key=lambda kind: float(whole[kind]["1"]["p50"]), default=None)

    @property
    def latency(self) -> float:
        """Milliseconds of one example in that format; without end when there is none."""
        return float(self.speed[self.fastest]["latency"]["1"]["p50"]) if self.fastest else float("inf")


def beside_each_other(
    entries: Sequence[Entry], measure: Callable[[Sequence[Entry]], Sequence[T]]
) -> dict[str, T | str]:
    """Measure all, the first as the baseline of the others; return what was found by name.

    A baseline that fails is everybody's failure there. Here it is one of several: the next one is tried in its place,
    and its reason is what was found of it.
    """
    failed: dict[str, T | str] = {}
    for number, first in enumerate(entries):
        try:
            rows = measure(entries[number:])
        except ComponentError as error:
            failed[first.name] = in_a_line(error)
            continue
        return failed | {entry.name: row for entry, row in zip(entries[number:], rows, strict=True)}
    return failed


def in_a_line(error: ComponentError) -> str:
    r"""Why something failed; of a traceback its first line and its last.

    >>> in_a_line(ComponentError("module m.py: build_model() raised\nTraceback …\nValueError: no", "…", "…"))
    'module m.py: build_model() raised ValueError: no'
    """
    first, *more = error.received.strip().splitlines()
    return f"{first} {more[-1].strip()}" if more and first.endswith(" raised") else first
