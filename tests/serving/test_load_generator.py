"""Test the load generator: queues as theory has them, errors, and the search of replicas."""

import time

import numpy as np
import pytest

from tfopt.serving import load_generator
from tfopt.serving.load_generator import arrival_times, find_capacity, replicas_needed, send_batches, send_open_loop


class Server:
    """A worker that takes the same time for each request, and records how long it really took."""

    def __init__(self, seconds: float, count: int):
        self.seconds, self.times = seconds, np.zeros(count)

    def __call__(self, number: int) -> None:
        """Serve a request."""
        start = time.perf_counter()
        time.sleep(self.seconds)
        self.times[number] = time.perf_counter() - start


def lindley(arrivals: np.ndarray, services: np.ndarray) -> np.ndarray:
    """Return the latencies in the queue of one worker (Lindley's recursion)."""
    free, latencies = 0.0, []
    for arrival, service in zip(arrivals, services, strict=True):
        free = max(free, arrival) + service
        latencies.append(free - arrival)
    return np.array(latencies)


class SimulatedClock:
    """A clock that only sleeping moves, so that an hour of load takes a second."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self) -> float:
        """Return the simulated time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds


@pytest.mark.parametrize("rate", [50, 80])
def test_poisson_load_on_one_worker_waits_as_pollaczek_and_khinchin_say(rate: int, monkeypatch):
    """M/D/1: a service of 10 ms, 17 and 10 minutes of load on a simulated clock."""
    clock, service = SimulatedClock(), 0.01
    monkeypatch.setattr(load_generator, "time", clock)
    arrivals = arrival_times("poisson", rate, 50_000, seed=1)
    assert np.diff(arrivals).mean() == pytest.approx(1 / rate, rel=0.02)
    result = send_open_loop([lambda number: clock.sleep(service)], arrivals)
    load = rate * service
    assert (result.latencies - service).mean() == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)
    assert len(result.delays) / len(arrivals) == pytest.approx(1 - load, abs=0.01)  # the share of idle time (PASTA)


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_latencies_are_those_of_the_queue_of_one_worker(arrivals: str, monkeypatch):
    clock, services = SimulatedClock(), np.random.default_rng(1).uniform(0.001, 0.0046, 150)
    monkeypatch.setattr(load_generator, "time", clock)
    times = arrival_times(arrivals, 300, 150)
    result = send_open_loop([lambda number: clock.sleep(services[number])], times)
    expected = lindley(times, services)
    assert (expected - services).max() > 0.001  # there was a queue
    np.testing.assert_allclose(result.latencies, expected, atol=1e-9)


def test_a_rate_above_the_capacity_has_a_growing_queue():
    """D/D/1: each request waits longer than the one before by what the service takes more than the distance."""
    server = Server(0.004, 50)
    latencies = send_open_loop([server], arrival_times("constant", 500, 50)).latencies
    # Threads wake up late on a busy machine; without the queue, the last latency would be that of one request.
    assert latencies[-1] == pytest.approx(server.times.sum() - 49 / 500, abs=0.05)
    assert (np.diff(latencies) > 0).all()
    two = Server(0.004, 50)
    assert send_open_loop([two, two], arrival_times("constant", 400, 50)).latencies[-1] < latencies[-1] / 3


def test_the_first_failure_of_a_client_ends_the_load():
    sent = []

    def fail(number: int) -> None:
        sent.append(number)
        if number == 3:
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        send_open_loop([fail, fail], arrival_times("constant", 1000, 500))
    assert len(sent) < 20


def test_replicas_are_found_with_few_measurements_or_not_at_all():
    tried = []

    def meets(replicas: int) -> bool:
        tried.append(replicas)
        return replicas >= 23

    assert replicas_needed(meets, 1, 1000) == 23
    assert len(tried) == len(set(tried)) < 12
    assert replicas_needed(lambda _: True, 4, 9) == 4
    assert replicas_needed(lambda _: False, 1, 6) is None


def test_waiting_requests_share_a_batch(monkeypatch):
    """Ten requests at once, batches of up to four, 10 ms each: 4, 4 and 2 of them."""
    clock, sizes = SimulatedClock(), []
    monkeypatch.setattr(load_generator, "time", clock)

    def answer(numbers: list[int]) -> None:
        sizes.append(len(numbers))
        clock.sleep(0.01)

    latencies = send_batches([answer], np.zeros(10), largest=4).latencies
    assert sizes == [4, 4, 2]
    assert latencies == pytest.approx([0.01] * 4 + [0.02] * 4 + [0.03] * 2)
    sizes.clear()
    assert send_batches([answer], arrival_times("constant", 50, 5), largest=4).latencies == pytest.approx([0.01] * 5)
    assert sizes == [1] * 5  # nothing waits, so nothing is held back for a larger batch


def test_a_load_ends_when_its_p99_cannot_meet_the_limit_any_more(monkeypatch):
    clock, sent = SimulatedClock(), []
    monkeypatch.setattr(load_generator, "time", clock)

    def answer(numbers: list[int]) -> None:
        sent.extend(numbers)
        clock.sleep(0.01)

    result = send_batches([answer], arrival_times("constant", 200, 400), largest=1, limit=0.05)
    # request n waits n times 5 ms: from the ninth on they are late, and the fifth late one is more than 1 % of 400
    assert len(sent) == 14 and np.isinf(result.latencies[14:]).all() and np.isfinite(result.latencies[:14]).all()


@pytest.mark.parametrize("capacity", [3.0, 47.0, 1500.0])
def test_a_capacity_is_never_too_high_and_too_low_by_the_resolution_at_most(capacity):
    tried = []
    highest = find_capacity(lambda rate: not tried.append(rate) and rate <= capacity, 1.0, 2000.0, 8)
    assert highest <= capacity < highest * 2000 ** (1 / 2**8) and len(tried) == 8
    assert find_capacity(lambda _: False, 1.0, 8.0, 3) == 0.0
