"""The content of ``infra_blessing.json``: whether each model can be served, and its latency as served."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.benchmark_report import SaturationRange


@dataclass(frozen=True)
class ServedLatency:
    """Latency and throughput with several clients at once, measured on a machine that also runs the server."""

    concurrency: int  # number of clients
    batch_size: int  # records per request
    calls: int  # number of requests
    p50_ms: float
    p99_ms: float
    requests_per_second: float


@dataclass(frozen=True)
class ClientSweep:
    """Latency by the number of clients."""

    clients: list[ServedLatency]  # a measurement for 1, 2, 4, … clients
    # the numbers of clients between which throughput saturates; None for fewer than two
    saturation: SaturationRange | None


@dataclass(frozen=True)
class RateLatency:
    """Latency under requests at a rate, counted from their arrival, so that it contains the wait for a free client."""

    rate: float  # requests per second of all replicas together
    arrivals: str  # ``poisson``, ``constant`` or ``recorded``
    replicas: int  # among which the requests were divided; one of them was measured
    calls: int  # number of requests
    p50_ms: float
    p99_ms: float
    delay_p99_ms: float | None  # of the generator itself; None if no client was ever free at an arrival
    # the smallest number of replicas that keeps ``max_p99_ms``; None without such a limit, or if none was found
    replicas_needed: int | None = None


@dataclass(frozen=True)
class ServedModel:
    """The serving test of one model."""

    name: str
    digest: str
    format: str
    layout: str
    server: str  # the software that served it; empty if it was not loaded
    blessed: bool  # True if it may be pushed
    reason: str  # a summary, or why it may not be pushed
    latency: ServedLatency | None  # None if it failed before the measurement
    sweep: ClientSweep | None  # None unless a sweep was requested
    requests: int | None = None  # number of requests whose outputs were compared
    inputs: dict[str, str] | None = None  # dtype and shape of each input
    outputs: dict[str, str] | None = None  # dtype and shape of each output
    source: str | None = None  # where the inputs of the requests came from
    max_error: float | None = None  # largest difference of an output from that of the model outside of the layout
    warm_up: str | None = None  # the recorded warm-up requests, or why there are none
    at_rate: RateLatency | None = None  # None unless a rate or recorded requests were passed
    labels: str | None = None  # the labels written into a LiteRT file, or why there are none
    replayed: bool = False  # True if `replay` compared it with the served version on recorded requests


@dataclass(frozen=True)
class ServingReport:
    """The content of ``infra_blessing.json``."""

    schema_version: ClassVar[int] = 1
    blessed: bool  # True if the model, which is the first of `models`, may be pushed
    reason: str  # the reason of that model
    models: list[ServedModel]  # the model, and its fallback if there is one
