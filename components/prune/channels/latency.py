"""Latency of smaller models relative to their parent, in the runtime that will serve them.

Both models are loaded in this process and called alternately in short intervals, so that other load on the machine
slows down both. It guides the search; `benchmark` measures the result in separate processes.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import SavedModel, TFLiteModel
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import random_batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.keras_models.layer_graph import Layer
from tfopt.runtimes import Runtime

REPETITIONS, BURST_S, WARMUP_CALLS = 9, 0.06, 3


class LatencyMeter:
    """Measures models as a fraction of one parent's latency, on random inputs.

    LiteRT has one thread, TensorFlow its default number, which one process cannot change.
    """

    def __init__(self, parent: Layer, runtime: str = "saved_model", records: int = 1) -> None:
        """Load the parent in a runtime, ``saved_model`` or ``tflite``, for calls with this number of records."""
        self.runtime, self.records = runtime, records
        self._parent = self._serve(parent)
        self._batch = random_batch(self._parent.inputs, records=records, seed=0)
        self._warm_up(self._parent)
        self.milliseconds = 1000 * _median_latency(self._parent, self._batch)

    def measure(self, model: Layer) -> float:
        """Return the latency of a model as a fraction of the parent's: the median over pairs of intervals."""
        served = self._serve(model)
        with served:
            for runtime in (self._parent, served):
                self._warm_up(runtime)
            pairs = (
                _median_latency(served, self._batch) / _median_latency(self._parent, self._batch)
                for _ in range(REPETITIONS)
            )
            return float(np.median(list(pairs)))

    def _serve(self, model: Layer) -> Runtime:
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            keras_models.save(model, Path(folder))
            if self.runtime == "saved_model":
                return runtimes.load(SavedModel(Path(folder)))
            return runtimes.load(TFLiteModel(_convert(Path(folder))), threads=1)

    def _warm_up(self, runtime: Runtime) -> None:
        for _ in range(WARMUP_CALLS):
            runtime.run(self._batch)


def _convert(folder: Path) -> Path:
    import tensorflow as tf

    file = folder / "model.tflite"
    try:
        file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder / "Format-Serving")).convert())
    except Exception as error:  # the converter raises several types
        received = f"latency_runtime=tflite: LiteRT cannot convert the model: {first_line(error)}"
        fix = "pass latency_runtime=saved_model"
        raise ComponentError(received, "a model with operations of LiteRT only", fix) from error
    return file


def _median_latency(runtime: Runtime, batch: Batch) -> float:
    """Return the median latency of calls in a short interval, in seconds."""
    times: list[float] = []
    end = time.perf_counter() + BURST_S
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        runtime.run_without_limit(batch)  # `run` was called to warm up
        times.append(time.perf_counter() - start)
    return float(np.median(times))
