"""How long answers take when several clients ask at once."""

import threading
import time
from typing import Any

import numpy as np

from tfopt.components.validate_serving.servers import Client, Server
from tfopt.examples import Batch


def measure(server: Server, batches: list[Batch], concurrency: int, seconds: float) -> dict[str, Any]:
    """Let each client ask one request after the other, and return percentiles over all of them, in milliseconds.

    The clients are threads of this process, and share the machine with the server: what is found holds for a machine
    that is as busy, and is no benchmark (`benchmark` makes those).
    """
    clients = [server.client() for _ in range(concurrency)]
    samples: list[list[float]] = [[] for _ in clients]
    failures: list[BaseException] = []
    began: list[float] = []
    together = threading.Barrier(concurrency, action=lambda: began.append(time.perf_counter()))

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
    taken = time.perf_counter() - began[0]
    every = np.concatenate([np.array(found) for found in samples]) * 1e3
    p50, p99 = np.percentile(every, [50, 99])
    return {
        "concurrency": concurrency,
        "batch_size": max((len(array) for array in batches[0].values() if array.ndim), default=1),
        "calls": len(every),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "requests_per_second": len(every) / taken,
    }
