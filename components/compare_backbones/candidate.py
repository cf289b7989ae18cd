"""A backbone in the comparison with its measurements so far, and the time budget of all."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.keras_models.backbones import Backbone
from tfopt.reports.benchmark_report import ModelBenchmark
from tfopt.reports.comparison_report import FailedMeasurement
from tfopt.reports.evaluation_report import ModelEvaluation
from tfopt.reports.inspection_report import InspectionReport

T = TypeVar("T")


@dataclass
class Candidate:
    """A backbone in the comparison, and what was measured so far."""

    backbone: Backbone
    module: Path  # its Python file
    folder: Path  # of its models
    error: str | None = None  # why it was not measured
    untrained: str | None = None  # why it was not trained
    inspection: InspectionReport | None = None  # None if it could not be built
    models: dict[str, Path] = field(default_factory=dict)  # untrained, by format
    benchmarks: dict[str, ModelBenchmark | FailedMeasurement] = field(default_factory=dict)  # by format
    trained: Model | None = None  # None if it was not trained
    train_seconds: float | None = None  # duration of the training step
    evaluation: ModelEvaluation | None = None  # None if it was not evaluated

    @property
    def name(self) -> str:
        """The name of the backbone."""
        return str(self.backbone)

    @property
    def fastest_format(self) -> str | None:
        """The format with the lowest latency; None if it was measured in none."""
        latencies = {
            name: row.latency["1"].p50
            for name, row in self.benchmarks.items()
            if isinstance(row, ModelBenchmark) and row.latency
        }
        return min(latencies, key=lambda name: latencies[name], default=None)

    @property
    def benchmark(self) -> ModelBenchmark | None:
        """The benchmark in the fastest format."""
        row = self.benchmarks.get(self.fastest_format or "")
        return row if isinstance(row, ModelBenchmark) else None

    @property
    def latency(self) -> float:
        """Median milliseconds of one example in the fastest format; infinite if it was not measured."""
        return self.benchmark.latency["1"].p50 if self.benchmark else float("inf")


def measure_together(
    candidates: Sequence[Candidate], measure: Callable[[Sequence[Candidate]], Sequence[T]]
) -> dict[str, T | FailedMeasurement]:
    """Measure all candidates, the first as the baseline, and return the results or failures by name.

    If the baseline fails, the component fails. Then its error is stored, and the next candidate is the baseline.
    """
    failures: dict[str, T | FailedMeasurement] = {}
    for number, first in enumerate(candidates):
        try:
            rows = measure(candidates[number:])
        except ComponentError as error:
            failures[first.name] = FailedMeasurement(summarize_error(error))
            continue
        return failures | {candidate.name: row for candidate, row in zip(candidates[number:], rows, strict=True)}
    return failures


def summarize_error(error: ComponentError) -> str:
    r"""Return an error in one line; of a traceback the first and the last line.

    >>> summarize_error(ComponentError("module m.py: build_model() raised\nTraceback …\nValueError: no", "…", "…"))
    'module m.py: build_model() raised ValueError: no'
    """
    first, *more = error.received.strip().splitlines()
    return f"{first} {more[-1].strip()}" if more and first.endswith(" raised") else first


class Budget:
    """A time budget that starts when the object is created."""

    def __init__(self, minutes: float) -> None:
        """Start the clock."""
        self.minutes = minutes
        self._end = time.monotonic() + 60 * minutes

    def __str__(self) -> str:
        """Return the elapsed part as text."""
        elapsed = self.minutes - (self._end - time.monotonic()) / 60
        return f"{elapsed:.1f} of {self.minutes:g} min"

    @property
    def is_spent(self) -> bool:
        """True if no time is left."""
        return time.monotonic() >= self._end

    def remaining_seconds(self) -> float:
        """Return the remaining seconds; raise ComponentError if no time is left."""
        if self.is_spent:
            received = f"no budget left: the {self.minutes:g} minutes were used up before it"
            raise ComponentError(received, "time for each backbone", "allow more minutes, or name fewer backbones")
        return max(self._end - time.monotonic(), 0.01)
