"""Parameters, FLOPs and latency of a model with some of its channels.

Parameters and FLOPs are computed from the labels, without building the smaller model. The latency is relative to the
parent: both are served as SavedModels and timed alternately in this process. It guides the search; `benchmark` measures
the result in separate processes.
"""

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.prune.channels.labels import ChannelGraph, Remaining
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import random_batch
from tfopt.keras_models.layer_graph import Layer
from tfopt.runtimes import Runtime

REPETITIONS, BURST_S, WARMUP_CALLS = 9, 0.15, 3


@dataclass(frozen=True)
class Cost:
    """The size of a model.

    FLOPs are multiplications and additions of the kernels that are followed, for one record. Additions of biases and
    ops without a kernel are not counted.
    """

    parameters: int  # number of elements of all weights, trainable or not
    flops: int | None  # None if a size is unknown


def count_cost(model: Layer, graph: ChannelGraph, remaining: Remaining) -> Cost:
    """Return the cost of the model with the remaining channels."""
    shapes: dict[tuple[int, int], list[int]] = {}
    for (key, weight, axis), cut in graph.cuts.items():
        shape = shapes.setdefault((key, weight), [int(size) for size in cut.layer.weights[weight].shape])
        shape[axis] = int(np.count_nonzero(remaining[cut.labels]))
    sizes = {key: math.prod(shape) for key, shape in shapes.items()}
    before = {(key, weight): math.prod(cut.layer.weights[weight].shape) for (key, weight, _), cut in graph.cuts.items()}
    saved = sum(before.values()) - sum(sizes.values())
    total = sum(math.prod(weight.shape) for weight in model.weights)
    flops = 0
    for layer, weight, positions in graph.uses:
        if positions is None:
            return Cost(total - saved, None)
        flops += 2 * positions * sizes[id(layer), weight]
    return Cost(total - saved, flops)


def relative_latency(parent: Layer) -> Callable[[Layer], float]:
    """Return a function that measures the latency of a model as a fraction of the parent's.

    The fraction is the median over pairs of measurements, at batch size 1 with random inputs and TensorFlow's default
    threads.
    """
    served_parent = _serve(parent)
    batch = random_batch(served_parent.inputs, records=1, seed=0)

    def measure(model: Layer) -> float:
        served = _serve(model)
        for runtime in (served_parent, served):
            for _ in range(WARMUP_CALLS):
                runtime.run(batch)
        return float(np.median([_latency(served, batch) / _latency(served_parent, batch) for _ in range(REPETITIONS)]))

    return measure


def _serve(model: Layer) -> Runtime:
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        keras_models.save(model, Path(folder))
        return runtimes.load(SavedModel(Path(folder)))


def _latency(runtime: Runtime, batch: Batch) -> float:
    """Return the median latency of calls in a short interval, in seconds."""
    times: list[float] = []
    end = time.perf_counter() + BURST_S
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        runtime.run_without_limit(batch)  # `run` was called to warm up
        times.append(time.perf_counter() - start)
    return float(np.median(times))
