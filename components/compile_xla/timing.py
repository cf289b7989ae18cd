"""Times of models in a fresh process: load, first call (which compiles), and calls after that."""

import statistics
import time
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.compile_xla.saved_model import MAY, MUST
from tfopt.data.batches import Batch
from tfopt.graph.frozen_model import nodes

CALLS, SECONDS = 50, 2.0  # at most


def measure(models: list[SavedModel], batches: dict[int, Batch]) -> list[dict[str, Any]]:
    """Return seconds to load, and by batch size those of the first call beyond a later one, and of a later one."""
    import tensorflow as tf  # noqa: F401  (its import is no part of the load)

    return [_measure(model, batches) for model in models]


def _measure(model: SavedModel, batches: dict[int, Batch]) -> dict[str, Any]:
    start = time.perf_counter()
    runtime = runtimes.load(model)
    loaded = time.perf_counter() - start
    found = {}
    for size, batch in batches.items():
        first = _seconds(runtime, batch)
        later, until = [_seconds(runtime, batch)], time.perf_counter() + SECONDS
        while len(later) < CALLS and time.perf_counter() < until:
            later.append(_seconds(runtime, batch))
        call = statistics.median(later)
        found[size] = {"compile_s": max(first - call, 0.0), "call_s": call}
    return {"load_s": loaded, "batches": found, "marked": _is_marked(runtime)}


def _seconds(runtime: runtimes.Runtime, batch: Batch) -> float:
    start = time.perf_counter()
    runtime.run(batch)
    return time.perf_counter() - start


def _is_marked(runtime: Any) -> bool:
    """Whether what was loaded still holds a function that must be compiled, or operations that may be."""
    graph = runtime._call.graph.as_graph_def()
    whole = any(MUST in function.attr and function.attr[MUST].b for function in graph.library.function)
    return whole or any(MAY in node.attr and node.attr[MAY].b for node in nodes(graph))
