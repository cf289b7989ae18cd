"""One model of the benchmark: its process, and everything that is found out about it."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.components.benchmark.model_process import ModelProcess
from tfopt.errors import ComponentError
from tfopt.processes.rpc import Refused

log = logging.getLogger("tfopt")


@dataclass
class Contender:
    """A model with its process and its results so far.

    Attributes:
        error: Why it dropped out.
        notes: What a reader of its numbers should know.
        facts: Seconds and bytes, by their names in ``benchmark.json``.
        warm: For each batch size it can do, whether its bursts agreed when it was tried.
        call_seconds: For each batch size, about how long a call takes.
        samples: For each batch size, the nanoseconds of the calls of each round.
        others: For each batch size, the part of its cores' time that others had, in each turn.
    """

    name: str
    model: Model
    process: ModelProcess
    is_baseline: bool
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warm: dict[int, bool] = field(default_factory=dict)
    call_seconds: dict[int, float] = field(default_factory=dict)
    samples: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    others: dict[int, list[float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def dropping_out(self) -> Iterator[None]:
        """Make a candidate's failure its result. The baseline's is everybody's: nothing can be compared without it."""
        try:
            yield
        except ComponentError as refusal:
            self._drop_out(refusal.received)
            if self.is_baseline:
                raise
        except Refused as failure:
            self._drop_out(str(failure))
            if self.is_baseline:
                raise ComponentError(
                    f"the baseline {self.name}: {failure}",
                    "a baseline that runs to the end",
                    "mend it, or name another; candidates are measured against it",
                ) from failure

    def round_medians(self, batch_size: int) -> NDArray[np.float64]:
        """The median nanoseconds of a call, of each round."""
        return np.array([np.median(burst) for burst in self.samples[batch_size]])

    def _drop_out(self, reason: str) -> None:
        self.error = reason
        self.samples.clear()  # half a measurement would be read as a whole one
        log.info("%s drops out: %s", self.name, reason)
