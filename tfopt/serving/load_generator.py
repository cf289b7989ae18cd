"""Open-loop load: each request is sent at its own time, whether or not earlier ones have been answered.

Clients that wait for an answer before they send the next request (a closed loop) slow down with the server, and hide
the requests that would have queued meanwhile. Here latency counts from the arrival, so that it contains the queue.

Source: Schroeder, Wierman and Harchol-Balter 2006, "Open versus closed: a cautionary tale"; for the queues that tests
compare with, Kleinrock 1975, "Queueing systems", volume 1, chapter 5 (Pollaczek and Khinchin's formula).
"""

import bisect
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Send = Callable[[int], object]  # sends the request of a number, and returns when it is answered
SendBatch = Callable[[list[int]], object]  # the same for several requests in one batch
Arrivals = Literal["poisson", "constant"]

HOURS_PER_MONTH, SECONDS_PER_HOUR = 730.5, 3600
LEAD = 0.01  # seconds before the first arrival, in which the threads start
LATE_SHARE = 0.01  # of the requests: with more, the 99th percentile is above the limit
FEWEST = 100  # requests at a rate: with fewer the 99th percentile is the largest value


@dataclass(frozen=True)
class OpenLoop:
    """The result of a load, in seconds."""

    latencies: Times  # of each request, from its arrival to its answer
    # of those requests for which a client was free at the arrival: how long after it the generator sent them
    delays: Times


def arrival_times(arrivals: Arrivals, rate: float, count: int, seed: int = 0) -> Times:
    """Return so many arrival times in seconds: at random with a mean rate per second, or at equal distances.

    >>> arrival_times("constant", 4, 3).tolist()
    [0.0, 0.25, 0.5]
    """
    if arrivals == "constant":
        return np.arange(count) / rate
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def repeat_times(times: Times, count: int) -> Times:
    """Return so many recorded times: after the last one all begin again, at the mean distance from it.

    >>> repeat_times(np.array([0.0, 1.0, 4.0]), 5).tolist()
    [0.0, 1.0, 4.0, 6.0, 7.0]
    """
    numbers = np.arange(count)
    duration = times[-1] * len(times) / (len(times) - 1)
    return np.asarray(times[numbers % len(times)] + numbers // len(times) * duration)


def send_open_loop(clients: Sequence[Send], arrivals: Times) -> OpenLoop:
    """Send request 0, 1, … at their arrival times, in this order, each by the first client that is free.

    Every client is called by one thread. With all clients busy, a request waits, as in the queue of a server with so
    many workers.

    Raises:
        BaseException: What a client raised first; no request is sent afterwards.
    """
    return send_batches([partial(_send_first, client) for client in clients], arrivals, largest=1)


def _send_first(send: Send, numbers: list[int]) -> None:
    send(numbers[0])


def send_batches(
    clients: Sequence[SendBatch],
    arrivals: Times,
    largest: int,
    limit: float = math.inf,
    most_late: float = LATE_SHARE,
) -> OpenLoop:
    """Send requests as `send_open_loop` does, but a client that gets free takes all that wait, up to ``largest``.

    When more than the share ``most_late`` of all requests took longer than ``limit``, no further one is sent: their
    latencies are infinite.
    """
    times: list[float] = arrivals.tolist()  # lists, because this code is a part of the time of each request
    latencies, delays = [math.inf] * len(times), [math.nan] * len(times)
    lock, failures, next_number, late = threading.Lock(), list[BaseException](), 0, 0
    begin = time.perf_counter() + LEAD - (times[0] if times else 0.0)

    def take(count: int) -> list[int]:
        nonlocal next_number
        with lock:
            first, next_number = next_number, min(next_number + count, len(times))
            return list(range(first, next_number))

    def waiting() -> int:
        return max(0, bisect.bisect_right(times, time.perf_counter() - begin) - next_number)

    def work(send: SendBatch) -> None:
        nonlocal late
        try:
            while not failures and late <= most_late * len(times) and (numbers := take(1)):
                due = begin + times[numbers[0]]
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                    delays[numbers[0]] = time.perf_counter() - due
                if largest > 1:
                    numbers += take(min(waiting(), largest - 1))
                send(numbers)
                end = time.perf_counter() - begin
                for number in numbers:
                    latencies[number] = end - times[number]
                    if latencies[number] > limit:
                        late += 1
        except BaseException as error:  # raised again in the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=(send,)) for send in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return OpenLoop(np.array(latencies), np.array([delay for delay in delays if math.isfinite(delay)]))


def find_capacity(is_met: Callable[[float], bool], low: float, high: float, steps: int) -> float:
    """Return the highest of the rates tried between two that meets a limit; 0 if none does, which starts at ``low``.

    Each step tries the middle, on a logarithmic scale, between the highest rate that meets it and the lowest that does
    not, so the result is too low by at most the ``2**steps``-th root of ``high / low``.

    >>> 95 < find_capacity(lambda rate: rate <= 100, low=10, high=160, steps=6) <= 100
    True
    """
    met = 0.0
    for _ in range(steps):
        rate = math.sqrt((met or low) * high)
        met, high = (rate, high) if is_met(rate) else (met, rate)
    return met


def cost_per_million(price: float, rate: float) -> float:
    """Return the cost of a million predictions by a node with a price for an hour, at a rate per second.

    >>> round(cost_per_million(0.36, 100), 6)
    1.0
    """
    return price / SECONDS_PER_HOUR * 1e6 / rate


def nodes_needed(rate: float, capacity: float) -> int:
    """Return the number of nodes for a rate per second; a share below a millionth of a node is rounding."""
    return math.ceil(rate / capacity * (1 - 1e-6))


def cost_per_month(price: float, rate: float, capacity: float) -> float:
    """Return the cost of the nodes for a rate in a month, with a price of each for an hour.

    >>> cost_per_month(0.5, rate=300, capacity=120)
    1095.75
    """
    return nodes_needed(rate, capacity) * price * HOURS_PER_MONTH


def possible_saving(price: float, rate: float, capacity: float) -> float:
    """Return the most that a better model can save in a month at a rate: all nodes but one.

    >>> possible_saving(0.5, rate=300, capacity=120)
    730.5
    """
    return cost_per_month(price, rate, capacity) - price * HOURS_PER_MONTH


@dataclass(frozen=True)
class ServingCost:
    """Cost of a model at its capacity, else at its throughput, next to that of a baseline."""

    per_million: float  # of a million predictions
    baseline_per_million: float
    # with a rate: nodes for it, and what the smaller number of nodes saves in a month
    nodes: int | None = None
    baseline_nodes: int | None = None
    saved_per_month: float | None = None


def compare_costs(price: float, capacity: float, baseline: float, rate: float | None) -> ServingCost:
    """Return the cost of a model next to that of a baseline, from their capacities and the rate of requests, if known.

    >>> compare_costs(0.5, 200, 100, rate=300).saved_per_month  # 2 nodes instead of 3
    365.25
    """
    millions = cost_per_million(price, capacity), cost_per_million(price, baseline)
    if not rate:
        return ServingCost(*millions)
    nodes, before = nodes_needed(rate, capacity), nodes_needed(rate, baseline)
    saved = cost_per_month(price, rate, baseline) - cost_per_month(price, rate, capacity)
    return ServingCost(*millions, nodes, before, saved)


def replicas_needed(meets: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the smallest number of replicas that meets a goal; None if ``most`` do not.

    A load that a number of replicas carries is carried by more of them, so the number is found by doubling the step
    from ``least``, and bisection.

    >>> replicas_needed(lambda replicas: replicas >= 11, least=3, most=64)
    11
    """
    missed, step, enough = least - 1, 1, least
    while not meets(enough):
        if enough == most:
            return None
        missed, step, enough = enough, 2 * step, min(enough + step, most)
    while enough - missed > 1:
        middle = (missed + enough) // 2
        missed, enough = (missed, middle) if meets(middle) else (middle, enough)
    return enough
