"""A backbone in the comparison, with its measurements so far."""

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
    """A backbone in the comparison, and what was measured so far.

    Attributes:
        backbone: The backbone.
        module: Its Python module.
        folder: The folder of its models.
        error: Why it was not measured, or None.
        untrained: Why it was not trained, or None.
        models: Its untrained model by format.
        benchmarks: Its benchmark by format.
        train_seconds: Duration of the training step.
    """

    backbone: Backbone
    module: Path
    folder: Path
    error: str | None = None
    untrained: str | None = None
    inspection: InspectionReport | None = None
    models: dict[str, Path] = field(default_factory=dict)
    benchmarks: dict[str, ModelBenchmark | FailedMeasurement] = field(default_factory=dict)
    trained: Model | None = None
    train_seconds: float | None = None
    evaluation: ModelEvaluation | None = None

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
) -> dict[str, T | str]:
    """Measure all candidates, the first as the baseline, and return the results or errors by name.

    If the baseline fails, the component fails. Then its error is stored, and the next candidate is the baseline.
    """
    errors: dict[str, T | str] = {}
    for number, first in enumerate(candidates):
        try:
            rows = measure(candidates[number:])
        except ComponentError as error:
            errors[first.name] = summarize_error(error)
            continue
        return errors | {candidate.name: row for candidate, row in zip(candidates[number:], rows, strict=True)}
    return errors


def summarize_error(error: ComponentError) -> str:
    r"""Return an error in one line; of a traceback the first and the last line.

    >>> summarize_error(ComponentError("module m.py: build_model() raised\nTraceback …\nValueError: no", "…", "…"))
    'module m.py: build_model() raised ValueError: no'
    """
    first, *more = error.received.strip().splitlines()
    return f"{first} {more[-1].strip()}" if more and first.endswith(" raised") else first
