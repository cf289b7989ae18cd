from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between
from tfopt.declaration.parameters import Location
from tfopt.serving.load_generator import Arrivals


@dataclass(frozen=True, kw_only=True)
class ServingTest:
    """Layout, requests and limits of a serving test.

    Attributes:
        layout: As in `push_model`.
        destination: As in `push_model`: a user's config.pbtxt there is checked instead of a generated one.
        verify: The model is a version that `push_model` wrote, ``DESTINATION/NUMBER``: compare it with its manifest
            before it is loaded. A file that is missing, changed or added is an error.
        public_key: A file with the public key (PEM) that the version must be signed for; implies ``verify``.
        requests: Number of different requests.
        batch_size: Number of examples in a request, if the model's batch size is open.
        concurrency: Number of clients that send requests at the same time while latency is measured.
        sweep: Also measure 1, 2, 4, … clients, up to this number, and report from how many on throughput is saturated:
            more clients give less than 5 % more responses a second, with 99 % intervals.
        seconds: Duration of the latency measurement; with a sweep, for each number of clients as well. At a
            rate, or the times of a ``recording``, at least 100 requests are sent.
        max_p99_ms: The largest allowed 99th percentile of latency with that many clients, or at the ``rate`` or the
            recorded times, in milliseconds; no limit by default.
        rate: Also send so many requests per second, whether or not earlier ones are answered (an open loop). Latency
            then counts from the arrival of a request, so that it contains the wait in the queue. At most
            ``concurrency`` requests are served at the same time. With a ``recording`` it replaces the recorded times.
        arrivals: The times of these requests: ``poisson`` for the random times of many independent users, ``constant``
            for equal distances.
        replicas: Number of servers among which the requests of the rate, or of the ``recording``, are divided at
            random. The report says how many the limit needs.
        max_seconds: A model whose test takes longer, loading included, is not blessed.
        tolerance: The largest allowed difference in an output, as a fraction of its range. The default is 0.0001, or
            0.01 if the graph computes in float16, and 0.05 in bfloat16.
        max_batch_size: As in `push_model`, which must get the same value.
    """

    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto"
    destination: str | None = None
    verify: bool = False
    public_key: Annotated[str, Location()] | None = None
    requests: Annotated[int, Between(1, 1000)] = 16
    batch_size: Annotated[int, Between(1)] = 1
    concurrency: Annotated[int, Between(1)] = 4
    sweep: Annotated[int, Between(2)] | None = None
    seconds: Annotated[float, Between(0)] = 1.0
    max_p99_ms: Annotated[float, Between(0)] | None = None
    rate: Annotated[float, Between(0.001)] | None = None
    arrivals: Arrivals = "poisson"
    replicas: Annotated[int, Between(1, 1000)] = 1
    max_seconds: Annotated[float, Between(1)] = 300.0
    tolerance: Annotated[float, Between(0, 1)] | None = None
    max_batch_size: Annotated[int, Between(1)] = 64
