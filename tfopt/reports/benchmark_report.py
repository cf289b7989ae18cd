"""The content of ``benchmark.json``: latency, throughput, size and speedup of each model."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from tfopt.value_types import JsonObject

MOST_DISTURBED = 0.15  # share of the rounds; with more, an interval of 60 rounds is unbounded and latency is unstable


@dataclass(frozen=True)
class Latency:
    """Latency of a model at one batch size, in milliseconds."""

    p50: float
    p90: float
    p99: float
    mean: float
    samples: int  # number of recorded calls
    disturbed: float  # share of the time that the model waited for its cores, because other processes used them
    stable: bool  # True if the measurement is repeatable: warmed up, rounds close together, machine free
    disturbed_rounds: int = 0  # rounds in which other processes used the machine, its other cores included


# "unstable": other processes disturbed so many rounds that their results could be anything; nothing was compared.
Verdict = Literal["faster", "slower", "within noise", "unstable"]
UNSTABLE: Final[Verdict] = "unstable"


@dataclass(frozen=True)
class SpeedupEstimate:
    """Another model's time divided by the model's time, with its confidence interval."""

    value: float  # estimate; 2 is twice as fast
    low: float
    high: float
    # The comparison with the other model. If it is ``unstable``, value and interval are those of the disturbed rounds:
    # they may be far from the ratio on a quiet machine.
    verdict: Verdict

    @property
    def is_unstable(self) -> bool:
        """True if nothing was compared, because other processes disturbed too many rounds."""
        return self.verdict == UNSTABLE


@dataclass(frozen=True)
class SaturationRange:
    """The batch sizes, or numbers of clients, between which throughput saturates."""

    low: int  # every smaller size has a throughput that is significantly lower than a larger one's, by more than `gain`
    high: int | None  # no larger size has a throughput higher by `gain`, significantly; None if this holds for no size
    largest: int
    gain: float  # relative growth of throughput that counts
    summary: str


@dataclass(frozen=True)
class Measured:
    """A value with its interval of 99 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ColdStart:
    """The time from the start of loading a model to the end of its first call, in a process that has the runtime."""

    seconds: float  # median over the rounds
    over_baseline: SpeedupEstimate | None  # how many times as fast as the baseline it starts; None for the baseline
    over_best: SpeedupEstimate | None  # the same for the model that starts fastest; None for it


@dataclass(frozen=True)
class NodeLoad:
    """A node that serves a model, under requests that do not wait for earlier answers (an open loop)."""

    threads: int  # of each instance
    instances: int
    batch_size: int  # the largest number of waiting requests that an instance answers in one call
    tried: dict[str, float]  # capacity by instances, threads and batch size, in the search of the best ones
    rounds: int
    disturbed_rounds: int  # in which other processes used the cores
    stable: bool  # False if they were too many: nothing was compared, and the interval is that of these rounds
    requests: int
    capacity: Measured  # requests per second with a p99 within the limit; 0 if no rate has one
    # of the requests that found a free instance: p99 of how late the generator sent them, in milliseconds
    delay_p99_ms: float | None
    p99_at_rate: Measured | None = None  # in milliseconds, if one node gets all requests; None without a rate
    nodes: Measured | None = None  # that the rate needs; None without a rate or a capacity
    cost: Measured | None = None  # of a million predictions; None without a price or a capacity
    over_baseline: SpeedupEstimate | None = None  # capacity divided by the baseline's; None for the baseline
    over_best: SpeedupEstimate | None = None  # capacity divided by that of the model with the largest; None for it


@dataclass(frozen=True)
class LoadSettings:
    """The requests that nodes were measured with."""

    max_p99_ms: float
    rate: float | None  # requests per second
    arrivals: str  # ``poisson`` or ``constant``
    node_cores: int
    price: float | None  # of a node for an hour


@dataclass(frozen=True)
class ModelBenchmark:
    """The measurements of one model. Keys of the dictionaries are batch sizes."""

    name: str
    digest: str
    format: str
    error: str | None  # the reason why the model was not measured, or None
    environment: dict[str, str]  # environment variables that the model was run with
    # bytes of the model's files, ``raw`` and ``gzipped``; of a Keras file, without its optimizer's state
    sizes: dict[str, int]
    import_seconds: float | None
    load_seconds: float | None
    first_call_seconds: float | None
    runtime_memory_bytes: int | None  # peak memory after the import of the runtime
    peak_memory_bytes: int | None
    latency: dict[str, Latency]
    throughput: dict[str, float]  # examples a second
    speedup: dict[str, SpeedupEstimate]  # speedup over the baseline; empty for the baseline
    saturation: SaturationRange | None  # the batch sizes between which throughput saturates; None for fewer than two
    notes: list[str]
    # rounds that the model was measured in; fewer than all if its comparisons were decided
    rounds: dict[str, int] = field(default_factory=dict)
    # Speedup over the fastest model, from the rounds of both; less than 1 for a slower one. The fastest model itself
    # lacks the batch size.
    over_fastest: dict[str, SpeedupEstimate] = field(default_factory=dict)
    load: NodeLoad | None = None  # None if it was not measured
    cold_start: ColdStart | None = None  # None in reports of earlier versions, and for models that failed


@dataclass(frozen=True)
class BenchmarkReport:
    """The content of ``benchmark.json``."""

    schema_version: ClassVar[int] = 1
    environment: dict[str, Any]  # fingerprint of the machine, its load, and the configuration of TensorFlow
    baseline: str
    batch_sizes: list[int]  # measured batch sizes, ascending
    threads: int  # threads, and cores, of each model
    seconds: float  # measuring time of each model
    rounds: int  # largest number of rounds, each in a process of its own
    seed: int  # seed of the order of the turns and of random inputs
    inputs: JsonObject  # source of the inputs, with the number of records
    interval: dict[str, Any]  # method, level, looks, ``min_effect`` and ``another_runtime`` of the confidence intervals
    models: list[ModelBenchmark]  # the models, the baseline first
    split: str | None  # split of the examples that the inputs come from; None for random inputs
    load: LoadSettings | None = None  # None if no capacity was measured
