import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.components.benchmark.model_process import DeviceError, ModelProcess
from tfopt.components.benchmark.worker import ModelFacts
from tfopt.errors import ComponentError
from tfopt.processes.worker_process import CallFailed

MOST_WAITED = 0.05  # share of a round that a model waited for its cores; more disturbs the round
# Share of the other cores' time that was used; more disturbs the round. A tick of 10 ms in 0.1 s must not.
MOST_BUSY_ELSEWHERE = 0.2


@dataclass(frozen=True)
class RoundLoad:
    """Load by other processes during the turns that a model and the baseline took in one round."""

    waited: float = 0.0  # share of its turns that the model was ready to run, but waited for its cores
    baseline_waited: float = 0.0  # the same of the baseline
    # Share of the time of the machine's other cores that was used. Other cores share the memory bandwidth and the last
    # cache: a model that needs them became 40 % slower, a small one did not change.
    elsewhere: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """True if the ratio of the two models may differ from that on a quiet machine."""
        return max(self.waited, self.baseline_waited) > MOST_WAITED or self.elsewhere > MOST_BUSY_ELSEWHERE


@dataclass
class MeasuredModel:
    """A model with its process and its results so far."""

    name: str  # unique in the benchmark
    model: Model
    process: ModelProcess
    is_baseline: bool
    error: str | None = None  # why it is not measured any more, or None
    notes: list[str] = field(default_factory=list)  # remarks for the report
    facts: ModelFacts = field(default_factory=ModelFacts)
    # for each supported batch size: True if the warm-up converged
    is_warm: dict[int, bool] = field(default_factory=dict)
    # for each supported batch size, the approximate duration of a call
    call_seconds: dict[int, float] = field(default_factory=dict)
    open_sizes: set[int] = field(default_factory=set)  # batch sizes at which further rounds are needed
    # for each batch size, the nanoseconds of the calls of each round
    samples: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    # the same of the baseline, in the turns that it took with this model
    baseline_samples: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    load_seconds: float | None = None  # of the process that made no call yet
    starts: list[float] = field(default_factory=list)  # seconds of loading and first call of each round
    # for each batch size, what other processes did in each round
    loads: dict[int, list[RoundLoad]] = field(default_factory=dict)

    @contextlib.contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record a failure of a candidate as its result; raise a failure of the baseline, which all depend on."""
        try:
            yield
        except DeviceError:  # this ends the measurement of all models
            raise
        except ComponentError as error:
            self._drop(error.received)
            if self.is_baseline:
                raise
        except CallFailed as failure:
            self._drop(str(failure))
            if self.is_baseline:
                received = f"the baseline {self.name}: {failure}"
                fix = "fix it, or pass another one; candidates are measured against it"
                raise ComponentError(received, "a baseline that runs to the end", fix) from failure

    @property
    def loaded_bytes(self) -> int:
        """Memory of the loaded model in bytes, without that of the imported runtime, which models share."""
        return int(self.facts.get("peak_memory_bytes", 0) - self.facts.get("runtime_memory_bytes", 0))

    def round_medians(self, batch_size: int) -> NDArray[np.float64]:
        """Return the median nanoseconds of a call in each round; shape ``[rounds]``."""
        return _medians(self.samples[batch_size])

    def round_loads(self, batch_size: int) -> Sequence[RoundLoad]:
        """Return what other processes did in each round; nothing where this is not known."""
        return self.loads.get(batch_size) or [RoundLoad()] * len(self.samples[batch_size])

    def relative_times(self, batch_size: int) -> NDArray[np.float64]:
        """Return the median time of a call in each round, divided by the baseline's; shape ``[rounds]``."""
        return self.round_medians(batch_size) / _medians(self.baseline_samples[batch_size])

    def record(
        self,
        batch_size: int,
        number: int,
        calls: NDArray[np.int64],
        baseline_calls: NDArray[np.int64] | None,
        load: RoundLoad,
        start: float | None = None,
    ) -> None:
        """Store the nanoseconds of the calls of a round and of the baseline in these turns, and the seconds of a start.

        The baseline takes turns with several groups of a round, so its calls are added. A disturbed round of another
        model is replaced if this one is not disturbed.
        """
        samples, loads = self.samples.setdefault(batch_size, []), self.loads.setdefault(batch_size, [])
        if number < len(samples):
            was_disturbed = loads[number].is_disturbed
            if load.is_disturbed or not (self.is_baseline or was_disturbed):
                return
            if self.is_baseline and not was_disturbed:
                calls = np.concatenate([samples[number], calls])
        samples[number : number + 1] = [calls]
        loads[number : number + 1] = [load]
        if start is not None:
            self.starts[number : number + 1] = [start]
        if baseline_calls is not None:
            self.baseline_samples.setdefault(batch_size, [])[number : number + 1] = [baseline_calls]

    def _drop(self, reason: str) -> None:
        self.error = reason
        self.samples.clear()  # an incomplete measurement must not be reported
        logging.getLogger(__name__).info("%s is not measured any more: %s", self.name, reason)


def _medians(rounds: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    return np.array([np.median(calls) for calls in rounds])
