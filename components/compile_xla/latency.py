"""Latency of models in a fresh process: load, first call (which compiles), and later calls."""

import statistics
import time
from typing import Any, NotRequired, TypedDict

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.compile_xla.saved_model import MAY_COMPILE, MUST_COMPILE
from tfopt.data.batches import Batch
from tfopt.graph.frozen_model import nodes

MAX_CALLS, MAX_SECONDS = 50, 2.0


class CallTimes(TypedDict):
    """Seconds to compile, and of a call."""

    compile_s: float
    call_s: float


class ModelTimes(TypedDict):
    """Seconds to load a model, its times by batch size, and whether a part of it is marked for XLA."""

    load_s: float
    batches: dict[int, CallTimes]
    marked: NotRequired[bool]


def measure_models(models: list[SavedModel], batches: dict[int, Batch]) -> list[ModelTimes]:
    """Return the seconds to load, to compile and to call each model; the latter two by batch size.

    The compile time is the time of the first call minus that of a later one.
    """
    import tensorflow as tf  # noqa: F401  (the load time does not include the import)

    return [_measure(model, batches) for model in models]


def _measure(model: SavedModel, batches: dict[int, Batch]) -> ModelTimes:
    start = time.perf_counter()
    runtime = runtimes.load(model)
    load_seconds = time.perf_counter() - start
    times: dict[int, CallTimes] = {}
    for size, batch in batches.items():
        first = _call_seconds(runtime, batch)
        later, until = [_call_seconds(runtime, batch)], time.perf_counter() + MAX_SECONDS
        while len(later) < MAX_CALLS and time.perf_counter() < until:
            later.append(_call_seconds(runtime, batch))
        call = statistics.median(later)
        times[size] = {"compile_s": max(first - call, 0.0), "call_s": call}
    return {"load_s": load_seconds, "batches": times, "marked": _is_marked(runtime)}


def _call_seconds(runtime: runtimes.Runtime, batch: Batch) -> float:
    start = time.perf_counter()
    runtime.run(batch)
    return time.perf_counter() - start


def _is_marked(runtime: Any) -> bool:
    """Return True if the loaded graph has a function that must be compiled, or ops that may be compiled."""
    if not hasattr(runtime, "graph_def"):  # a Keras model without a SavedModel
        return False
    graph = runtime.graph_def
    must = any(MUST_COMPILE in function.attr and function.attr[MUST_COMPILE].b for function in graph.library.function)
    return must or any(MAY_COMPILE in node.attr and node.attr[MAY_COMPILE].b for node in nodes(graph))
