"""Latency of models in a fresh process: load, first call (which compiles), and later calls."""

import statistics
import time
from typing import TypedDict

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.data.batches import Batch
from tfopt.processes.memory import free_graphs
from tfopt.runtimes.runtime import Call

MAX_CALLS, MAX_SECONDS = 50, 2.0


class CallTimes(TypedDict):
    """Seconds to compile, and of a call."""

    compile_s: float
    call_s: float


class ModelTimes(TypedDict):
    """Seconds to load a model, and its times by batch size."""

    load_s: float
    batches: dict[int, CallTimes]


def measure_models(models: list[SavedModel], batches: dict[int, Batch]) -> list[ModelTimes]:
    """Return the seconds to load, to compile and to call each model; the latter two by batch size.

    The compile time is the time of the first call minus that of a later one.
    """
    import tensorflow as tf  # noqa: F401  (the load time does not include the import)

    return [_measure(model, batches) for model in models]


def _measure(model: SavedModel, batches: dict[int, Batch]) -> ModelTimes:
    free_graphs()  # of the model before
    start = time.perf_counter()
    with runtimes.load(model) as runtime:
        load_seconds = time.perf_counter() - start
        times: dict[int, CallTimes] = {}
        for size, batch in batches.items():
            first = _call_seconds(runtime.run, batch)  # compiles, and finds out whether a call ends
            later, until = [_call_seconds(runtime.run_without_limit, batch)], time.perf_counter() + MAX_SECONDS
            while len(later) < MAX_CALLS and time.perf_counter() < until:
                later.append(_call_seconds(runtime.run_without_limit, batch))
            call = statistics.median(later)
            times[size] = {"compile_s": max(first - call, 0.0), "call_s": call}
    return {"load_s": load_seconds, "batches": times}


def _call_seconds(run: Call, batch: Batch) -> float:
    start = time.perf_counter()
    run(batch)
    return time.perf_counter() - start
