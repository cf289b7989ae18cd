"""Latency with several clients at once or at a rate, and the number of clients at which throughput is saturated."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.measurement.saturation import find_saturation
from tfopt.reports.serving_report import ClientSweep, RateLatency, ServedLatency
from tfopt.serving.load_generator import (
    FEWEST,
    Arrivals,
    Times,
    arrival_times,
    repeat_times,
    replicas_needed,
    send_open_loop,
)
from tfopt.serving.recordings.recorded_requests import Recording
from tfopt.serving.servers import Client

MOST_TIMES = 16  # as many replicas as the throughput needs, when the number of replicas is searched
ROUNDS = 15  # of a sweep: enough that the median ignores disturbed rounds


def measure(clients: Sequence[Client], batches: list[Batch], seconds: float) -> ServedLatency:
    """Let each client send one request after the other, and return percentiles over all of them, in milliseconds.

    The clients are threads of this process and share the machine with the server. The result holds for a machine with
    this load and is not a benchmark; see the component `benchmark`.
    """
    (latency,), _ = _measure(clients, batches, seconds, [len(clients)], rounds=1)
    return latency


def sweep(clients: Sequence[Client], batches: list[Batch], seconds: float) -> ClientSweep:
    """Measure 1, 2, 4, … of the clients for ``seconds`` each, and report at which number throughput is saturated."""
    counts = [1 << power for power in range(len(clients).bit_length())]
    latencies, rates = _measure(clients, batches, seconds, counts, ROUNDS)
    return ClientSweep(latencies, find_saturation(rates))


@dataclass(frozen=True)
class Traffic:
    """Requests, and the times at which they arrive at all replicas together."""

    batches: list[Batch]
    rate: float  # requests per second
    arrivals: Arrivals
    times: Times | None = None  # recorded ones, in seconds from the first, in place of ``arrivals``

    @classmethod
    def at_rate(cls, batches: list[Batch], test: ServingTest) -> "Traffic | None":
        """Return requests at the rate of the test; None if it has none."""
        return cls(batches, test.rate, test.arrivals) if test.rate else None

    @classmethod
    def recorded(cls, recording: Recording, test: ServingTest) -> "Traffic":
        """Return recorded requests, at their own times if the test has no rate.

        Raises:
            ComponentError: If there is neither a rate nor a duration of the recording.
        """
        batches, times = [request.inputs for request in recording.requests], recording.times
        if at_rate := cls.at_rate(batches, test):
            return at_rate
        if times is None or times[-1] <= 0:
            received = "a recording without times" if times is None else "a recording whose requests have one time"
            fix = "record the times, or pass rate=300, for example"
            raise ComponentError(f"{received}, and no rate", "requests with times, or a rate", fix)
        return cls(batches, (len(times) - 1) / float(times[-1]), test.arrivals, times)

    def part(self, replicas: int, seconds: float) -> tuple[NDArray[np.int64], Times]:
        """Return the numbers and times of the requests that one of the replicas gets in some seconds."""
        if self.times is None:
            count = max(FEWEST, round(self.rate / replicas * seconds))
            return np.arange(count), arrival_times(self.arrivals, self.rate / replicas, count)
        count = max(FEWEST * replicas, int(np.searchsorted(self.times, seconds, side="right")))
        chosen = np.flatnonzero(np.random.default_rng(0).random(count) < 1 / replicas)
        return chosen, repeat_times(self.times, count)[chosen]


def measure_rate(clients: Sequence[Client], traffic: Traffic, test: ServingTest, throughput: float) -> RateLatency:
    """Return percentiles of latency under the traffic, and how many replicas the limit of the test needs.

    Each replica gets an equal share of the requests at random, so one of them is measured with that part of them.
    ``throughput`` is what one replica answers per second without a pause.
    """
    limit = test.max_p99_ms

    @cache
    def measure_part(replicas: int) -> RateLatency:
        numbers, times = traffic.part(replicas, test.seconds)
        calls = [partial(_send_one, client, traffic.batches, numbers) for client in clients]
        load = send_open_loop(calls, times)
        p50, p99 = (float(value) for value in np.percentile(load.latencies * 1e3, [50, 99]))
        delay = float(np.percentile(load.delays * 1e3, 99)) if len(load.delays) else None
        arrivals = traffic.arrivals if traffic.times is None else "recorded"
        return RateLatency(traffic.rate, arrivals, replicas, len(times), p50, p99, delay)

    measured = measure_part(test.replicas)
    if limit is None or measure(clients[:1], traffic.batches, test.seconds).p99_ms > limit:  # no queue can be shorter
        return measured
    least = max(1, int(traffic.rate / throughput / 2))
    needed = replicas_needed(
        lambda count: measure_part(count).p99_ms <= limit, least, MOST_TIMES * least + test.replicas
    )
    return replace(measured, replicas_needed=needed)


def _send_one(client: Client, batches: list[Batch], numbers: NDArray[np.int64], position: int) -> None:
    client(batches[int(numbers[position]) % len(batches)])


def _measure(
    clients: Sequence[Client], batches: list[Batch], seconds: float, counts: list[int], rounds: int
) -> tuple[list[ServedLatency], dict[int, NDArray[np.float64]]]:
    """Return the latency with each number of clients, and the requests per second in each round."""
    durations: dict[int, list[float]] = {count: [] for count in counts}
    rates = {count: np.zeros(rounds) for count in counts}
    for number in range(rounds):
        for count in counts[::-1] if number % 2 else counts:  # in turns, back and forth, so that drift cancels
            round_durations, total = _send_requests(clients[:count], batches, seconds / rounds)
            durations[count] += round_durations
            rates[count][number] = len(round_durations) / total
    batch_size = max((len(array) for array in batches[0].values() if array.ndim), default=1)
    latencies = []
    for count in counts:
        p50, p99 = np.percentile(np.array(durations[count]) * 1e3, [50, 99])
        rate = float(np.median(rates[count]))
        latencies.append(ServedLatency(count, batch_size, len(durations[count]), float(p50), float(p99), rate))
    return latencies, rates


def _send_requests(clients: Sequence[Client], batches: list[Batch], seconds: float) -> tuple[list[float], float]:
    """Return the seconds of each call of all clients, and the total duration."""
    durations: list[list[float]] = [[] for _ in clients]
    failures: list[BaseException] = []
    start_times: list[float] = []
    all_ready = threading.Barrier(len(clients), action=lambda: start_times.append(time.perf_counter()))

    def send(client: Client, own: list[float], offset: int) -> None:
        try:
            client(batches[0])
            all_ready.wait()  # without a limit for the first call; the process has one
            end = time.perf_counter() + seconds
            while not own or time.perf_counter() < end:
                batch = batches[(offset + len(own)) % len(batches)]
                start = time.perf_counter()
                client(batch)
                own.append(time.perf_counter() - start)
        except BaseException as error:  # raised again in the thread that waits
            failures.append(error)
            all_ready.abort()

    threads = [
        threading.Thread(target=send, args=(client, own, number))
        for number, (client, own) in enumerate(zip(clients, durations, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [second for own in durations for second in own], time.perf_counter() - start_times[0]
