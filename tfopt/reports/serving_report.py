"""The content of ``infra_blessing.json``: whether each model can be served, and its latency as served."""

from dataclasses import dataclass
from typing import ClassVar

from tfopt.reports.benchmark_report import SaturationRange


@dataclass(frozen=True)
class ServedLatency:
    """Latency and throughput with several clients at once, measured on a machine that also runs the server.

    Attributes:
        concurrency: Number of clients.
        batch_size: Records per request.
        calls: Number of requests.
    """

    concurrency: int
    batch_size: int
    calls: int
    p50_ms: float
    p99_ms: float
    requests_per_second: float


@dataclass(frozen=True)
class ClientSweep:
    """Latency by the number of clients.

    Attributes:
        clients: A measurement for 1, 2, 4, … clients.
        saturation: The numbers of clients between which throughput saturates; None for fewer than two.
    """

    clients: list[ServedLatency]
    saturation: SaturationRange | None


@dataclass(frozen=True)
class ServedModel:
    """The serving test of one model.

    Attributes:
        server: The software that served it; empty if it was not loaded.
        blessed: True if it may be pushed.
        reason: A summary, or why it may not be pushed.
        latency: None if it failed before the measurement.
        sweep: None unless a sweep was requested.
        requests: Number of requests whose outputs were compared.
        inputs: Dtype and shape of each input.
        outputs: Dtype and shape of each output.
        source: Where the inputs of the requests came from.
        max_error: Largest difference of an output from that of the model outside of the layout.
        warm_up: The recorded warm-up requests, or why there are none.
        labels: The labels written into a LiteRT file, or why there are none.
    """

    name: str
    digest: str
    format: str
    layout: str
    server: str
    blessed: bool
    reason: str
    latency: ServedLatency | None
    sweep: ClientSweep | None
    requests: int | None = None
    inputs: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    source: str | None = None
    max_error: float | None = None
    warm_up: str | None = None
    labels: str | None = None


@dataclass(frozen=True)
class ServingReport:
    """The content of ``infra_blessing.json``.

    Attributes:
        blessed: True if the model, which is the first of `models`, may be pushed.
        reason: The reason of that model.
        models: The model, and its fallback if there is one.
    """

    schema_version: ClassVar[int] = 1
    blessed: bool
    reason: str
    models: list[ServedModel]
