"""How long a smaller model takes, in units of its parent: both served as SavedModels, taking turns in this process.

It steers a search and proves nothing: a result is compared with its parent by `benchmark`, in processes of their own.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import SavedModel
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import random_batch
from tfopt.keras_models.layer_graph import Layer
from tfopt.runtimes import Runtime

TURNS, BURST, WARM = 9, 0.15, 3  # pairs of turns, seconds each, calls before


def stopwatch(model: Layer) -> Callable[[Layer], float]:
    """Return a function from a model to the median, over pairs of turns, of its time over this model's.

    Batch size 1, random inputs, TensorFlow's threads as they are.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        parent = _serve(model, Path(folder))
    batch = random_batch(parent.inputs, records=1, seed=0)

    def timing(child: Layer) -> float:
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            served = _serve(child, Path(folder))
        for runtime in (parent, served):
            for _ in range(WARM):
                runtime.run(batch)
        return float(np.median([_turn(served, batch) / _turn(parent, batch) for _ in range(TURNS)]))

    return timing


def _serve(model: Layer, folder: Path) -> Runtime:
    keras_models.save(model, folder)
    return runtimes.load(SavedModel(folder))


def _turn(runtime: Runtime, batch: Batch) -> float:
    times: list[float] = []
    end = time.perf_counter() + BURST
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        runtime.run(batch)
        times.append(time.perf_counter() - start)
    return float(np.median(times))
