"""A model that is being measured: its process and its results so far."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.components.benchmark.model_process import ModelProcess
from tfopt.errors import ComponentError
from tfopt.processes.rpc import CallFailed

log = logging.getLogger(__name__)


@dataclass
class MeasuredModel:
    """A model with its process and its results so far.

    Attributes:
        name: Name of the model, unique in the benchmark.
        model: The model.
        process: Its process.
        is_baseline: True for the baseline.
        error: The reason why it is not measured any more, or None.
        notes: Remarks for the report.
        facts: Seconds and bytes, by their names in ``benchmark.json``.
        is_warm: For each supported batch size: True if the warm-up converged.
        call_seconds: For each supported batch size, the approximate duration of a call.
        open_sizes: Batch sizes at which further rounds are needed.
        samples: For each batch size, the nanoseconds of the calls of each round.
        baseline_samples: The same of the baseline, in the turns that it took with this model.
        foreign_load: For each batch size, the share of its cores' time that other processes used, in each turn.
    """

    name: str
    model: Model
    process: ModelProcess
    is_baseline: bool
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    is_warm: dict[int, bool] = field(default_factory=dict)
    call_seconds: dict[int, float] = field(default_factory=dict)
    open_sizes: set[int] = field(default_factory=set)
    samples: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    baseline_samples: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    foreign_load: dict[int, list[float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record a failure of a candidate as its result; raise a failure of the baseline, which all depend on."""
        try:
            yield
        except ComponentError as error:
            self._drop(error.received)
            if self.is_baseline:
                raise
        except CallFailed as failure:
            self._drop(str(failure))
            if self.is_baseline:
                raise ComponentError(
                    f"the baseline {self.name}: {failure}",
                    "a baseline that runs to the end",
                    "fix it, or pass another one; candidates are measured against it",
                ) from failure

    @property
    def loaded_bytes(self) -> int:
        """Memory of the loaded model in bytes, without that of the imported runtime, which models share."""
        return int(self.facts.get("peak_memory_bytes", 0) - self.facts.get("runtime_memory_bytes", 0))

    def round_medians(self, batch_size: int) -> NDArray[np.float64]:
        """Return the median nanoseconds of a call in each round."""
        return _medians(self.samples[batch_size])

    def relative_times(self, batch_size: int) -> NDArray[np.float64]:
        """Return the median time of a call in each round, divided by the baseline's; shape ``[rounds]``."""
        return self.round_medians(batch_size) / _medians(self.baseline_samples[batch_size])

    def _drop(self, reason: str) -> None:
        self.error = reason
        self.samples.clear()  # an incomplete measurement must not be reported
        log.info("%s is not measured any more: %s", self.name, reason)


def _medians(rounds: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    return np.array([np.median(calls) for calls in rounds])
