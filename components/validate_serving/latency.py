"""How long answers take when several clients ask at once, and how many of them it takes to get all there is."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.components.validate_serving.servers import Client
from tfopt.data.batches import Batch
from tfopt.measurement.saturation import Saturation

ROUNDS = 15  # of a sweep: enough for some of them to be disturbed


def measure(clients: Sequence[Client], batches: list[Batch], seconds: float) -> dict[str, Any]:
    """Let each client ask one request after the other, and return percentiles over all of them, in milliseconds.

    The clients are threads of this process, and share the machine with the server: what is found holds for a machine
    that is as busy, and is no benchmark (`benchmark` makes those).
    """
    taken, whole = _asked(clients, batches, seconds)
    return _facts(len(clients), batches, taken, len(taken) / whole)


def sweep(clients: Sequence[Client], batches: list[Batch], seconds: float) -> dict[str, Any]:
    """Measure 1, 2, 4, … of the clients, ``seconds`` each; say with how many the server gives no more.

    They take turns, in rounds of which every second one goes from the most to the fewest, so that drift cancels.
    """
    counts = [1 << power for power in range(len(clients).bit_length())]
    taken: dict[int, list[float]] = {count: [] for count in counts}
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for number in range(ROUNDS):
        for count in counts[::-1] if number % 2 else counts:
            found, whole = _asked(clients[:count], batches, seconds / ROUNDS)
            taken[count] += found
            rates[count].append(len(found) / whole)
    saturation = Saturation.of({count: np.array(found) for count, found in rates.items()})
    return {
        "clients": [_facts(count, batches, taken[count], float(np.median(rates[count]))) for count in counts],
        "saturation": saturation and saturation.facts(),
    }


def _asked(clients: Sequence[Client], batches: list[Batch], seconds: float) -> tuple[list[float], float]:
    """The seconds of each call of all clients, and how long it took altogether."""
    samples: list[list[float]] = [[] for _ in clients]
    failures: list[BaseException] = []
    began: list[float] = []
    together = threading.Barrier(len(clients), action=lambda: began.append(time.perf_counter()))

    def work(client: Client, found: list[float], offset: int) -> None:
        try:
            client(batches[0])
            together.wait()  # whatever a first call takes; the process has a limit of its own
            end = time.perf_counter() + seconds
            while not found or time.perf_counter() < end:
                batch = batches[(offset + len(found)) % len(batches)]
                start = time.perf_counter()
                client(batch)
                found.append(time.perf_counter() - start)
        except BaseException as error:  # handed to the thread that waits
            failures.append(error)
            together.abort()

    threads = [
        threading.Thread(target=work, args=(client, found, number))
        for number, (client, found) in enumerate(zip(clients, samples, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [second for found in samples for second in found], time.perf_counter() - began[0]


def _facts(clients: int, batches: list[Batch], taken: list[float], rate: float) -> dict[str, Any]:
    p50, p99 = np.percentile(np.array(taken) * 1e3, [50, 99])
    return {
        "concurrency": clients,
        "batch_size": max((len(array) for array in batches[0].values() if array.ndim), default=1),
        "calls": len(taken),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "requests_per_second": rate,
    }
