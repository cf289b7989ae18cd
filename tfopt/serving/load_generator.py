"""Open-loop load: each request is sent at its own time, whether or not earlier ones have been answered.

Clients that wait for an answer before they send the next request (a closed loop) slow down with the server, and hide
the requests that would have queued meanwhile. Here latency counts from the arrival, so that it contains the queue.

Source: Schroeder, Wierman and Harchol-Balter 2006, "Open versus closed: a cautionary tale"; for the queues that tests
compare with, Kleinrock 1975, "Queueing systems", volume 1, chapter 5 (Pollaczek and Khinchin's formula).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Send = Callable[[int], object]  # sends the request of a number, and returns when it is answered
Arrivals = Literal["poisson", "constant"]

LEAD = 0.01  # seconds before the first arrival, in which the threads start


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


def send_open_loop(clients: Sequence[Send], arrivals: Times) -> OpenLoop:
    """Send request 0, 1, … at their arrival times, in this order, each by the first client that is free.

    Every client is called by one thread. With all clients busy, a request waits, as in the queue of a server with so
    many workers.

    Raises:
        BaseException: What a client raised first; no request is sent afterwards.
    """
    latencies, delays = np.zeros(len(arrivals)), np.full(len(arrivals), np.nan)
    numbers, lock, failures = iter(range(len(arrivals))), threading.Lock(), list[BaseException]()
    begin = time.perf_counter() + LEAD - (arrivals[0] if len(arrivals) else 0.0)

    def work(send: Send) -> None:
        try:
            while not failures:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                due = begin + arrivals[number]
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                    delays[number] = time.perf_counter() - due
                send(number)
                latencies[number] = time.perf_counter() - due
        except BaseException as error:  # raised again in the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=work, args=(send,)) for send in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return OpenLoop(latencies, delays[np.isfinite(delays)])


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
