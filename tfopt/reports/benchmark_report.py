"""The content of ``benchmark.json``: latency, throughput, size and speedup of each model."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from tfopt.value_types import JsonObject

MOST_DISTURBED = 0.15  # share of the rounds; with more, an interval of 60 rounds is unbounded and latency is unstable


@dataclass(frozen=True)
class Latency:
    """Latency of a model at one batch size, in milliseconds.

    Attributes:
        samples: Number of recorded calls.
        disturbed: Share of the time that the model waited for its cores, because other processes used them.
        stable: True if the measurement is repeatable: warmed up, rounds close together, machine free.
        disturbed_rounds: Rounds in which other processes used the machine, its other cores included.
    """

    p50: float
    p90: float
    p99: float
    mean: float
    samples: int
    disturbed: float
    stable: bool
    disturbed_rounds: int = 0


# "unstable": other processes disturbed so many rounds that their results could be anything; nothing was compared.
Verdict = Literal["faster", "slower", "within noise", "unstable"]
UNSTABLE: Final[Verdict] = "unstable"


@dataclass(frozen=True)
class SpeedupEstimate:
    """Another model's time divided by the model's time, with its confidence interval.

    Attributes:
        value: Estimate; 2 is twice as fast.
        verdict: The comparison with the other model. If it is ``unstable``, value and interval are those of the
            disturbed rounds: they may be far from the ratio on a quiet machine.
    """

    value: float
    low: float
    high: float
    verdict: Verdict

    @property
    def is_unstable(self) -> bool:
        """True if nothing was compared, because other processes disturbed too many rounds."""
        return self.verdict == UNSTABLE


@dataclass(frozen=True)
class SaturationRange:
    """The batch sizes, or numbers of clients, between which throughput saturates.

    Attributes:
        low: Every smaller size has a throughput that is significantly lower than a larger one's, by more than `gain`.
        high: No larger size has a throughput higher by `gain`, significantly; None if this holds for no size.
        gain: Relative growth of throughput that counts.
    """

    low: int
    high: int | None
    largest: int
    gain: float
    summary: str


@dataclass(frozen=True)
class ModelBenchmark:
    """The measurements of one model. Keys of the dictionaries are batch sizes.

    Attributes:
        error: The reason why the model was not measured, or None.
        environment: Environment variables that the model was run with.
        sizes: Bytes of the model's files, ``raw`` and ``gzipped``; of a Keras file, without its optimizer's state.
        runtime_memory_bytes: Peak memory after the import of the runtime.
        throughput: Examples a second.
        rounds: Rounds that the model was measured in; fewer than all if its comparisons were decided.
        speedup: Speedup over the baseline; empty for the baseline.
        over_fastest: Speedup over the fastest model, from the rounds of both; less than 1 for a slower one. The fastest
            model itself lacks the batch size.
        saturation: The batch sizes between which throughput saturates; None for fewer than two.
    """

    name: str
    digest: str
    format: str
    error: str | None
    environment: dict[str, str]
    sizes: dict[str, int]
    import_seconds: float | None
    load_seconds: float | None
    first_call_seconds: float | None
    runtime_memory_bytes: int | None
    peak_memory_bytes: int | None
    latency: dict[str, Latency]
    throughput: dict[str, float]
    speedup: dict[str, SpeedupEstimate]
    saturation: SaturationRange | None
    notes: list[str]
    rounds: dict[str, int] = field(default_factory=dict)
    over_fastest: dict[str, SpeedupEstimate] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchmarkReport:
    """The content of ``benchmark.json``.

    Attributes:
        environment: Fingerprint of the machine, its load, and the configuration of TensorFlow.
        batch_sizes: Measured batch sizes, ascending.
        threads: Threads, and cores, of each model.
        seconds: Measuring time of each model.
        rounds: Largest number of rounds, each in a process of its own.
        seed: Seed of the order of the turns and of random inputs.
        inputs: Source of the inputs, with the number of records.
        interval: Method, level, looks, ``min_effect`` and ``another_runtime`` of the confidence intervals.
        models: The models, the baseline first.
        split: Split of the examples that the inputs come from; None for random inputs.
    """

    schema_version: ClassVar[int] = 1
    environment: dict[str, Any]
    baseline: str
    batch_sizes: list[int]
    threads: int
    seconds: float
    rounds: int
    seed: int
    inputs: JsonObject
    interval: dict[str, Any]
    models: list[ModelBenchmark]
    split: str | None
