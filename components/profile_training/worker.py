"""The process of one variation: it prepares the user's training and runs it for a turn at each call."""

import contextlib
import functools
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import psutil
import tensorflow as tf

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.components.profile_training import steps
from tfopt.components.profile_training.bottleneck import LARGER, USUAL
from tfopt.components.profile_training.graph_scan import scan_graphs
from tfopt.components.profile_training.trace_events import Loop, OperationTimes, Scopes, operation_times
from tfopt.components.profile_training.training_variant import STEPS_PER_CALL, TrainingVariant
from tfopt.processes.memory import peak_memory
from tfopt.training.checkpointing.checkpoints import steps_per_execution
from tfopt.training.compute.precision import fast_precisions, unaligned_layers
from tfopt.training.datasets.dataset import Source
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import MODEL_SETTINGS, prepare_training
from tfopt.training.user_module import UserModule
from tfopt.value_types import JsonObject

MAX_FILL_S = 15.0  # the longest time spent on a first epoch, which fills caches


class Worker:
    """One training. The parent process calls the public methods by name."""

    def build(self, variant: TrainingVariant) -> JsonObject:
        """Prepare the training, make a first step and, if it is short, a first epoch; return facts about it."""
        self._open, self._variant = contextlib.ExitStack(), variant
        self._open.enter_context(reproducible(variant.seed, deterministic=variant.deterministic))
        if variant.vectorized:
            _vectorize_maps()
        modes = {name: getattr(variant, name) for name in MODEL_SETTINGS}
        setup = prepare_training(UserModule(Path(variant.module)), Examples(variant.examples), **modes)
        source = setup.read_sources({"train": variant.count} if variant.count else None)["train"]
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="tfopt-cache-")))
        self._source = replace(source, settings=variant, folder=folder)
        self._model = setup.parts.model
        if variant.graph:
            self._model.run_eagerly = False
        if variant.sparse_updates:  # SGD changes only the rows of an embedding that a batch contains
            self._model.optimizer = keras_models.library(self._model).optimizers.SGD(1e-3)
        size = variant.steps_per_execution or steps_per_execution(self._model)
        _set_steps_per_execution(self._model, size)
        self._epoch = math.ceil(self._source.count / variant.batch_size) * variant.repeated
        self._cached = self._source.is_cached()
        batches = self._batches(self._source)
        if size > self._epoch:  # a call takes several epochs
            batches = batches.repeat()
        self._real = steps.training_steps(self._model, batches, max(1, self._epoch // size), size)
        self._parts: dict[str, steps.Epochs] = {}
        self._memory: dict[str, int] = {}
        first = self._real.run(1)
        is_slow = self._real.fill(MAX_FILL_S, cached=self._cached) > steps.LONG_EPOCH_S and not self._cached
        return {
            "count": self._source.count,
            "epoch": self._epoch,
            "first_step_s": first,
            "eager": bool(self._model.run_eagerly),
            "jit_compile": bool(getattr(self._model, "jit_compile", None) or getattr(self._model, "_jit_compile", 0)),
            "cached": self._cached,
            "slow": is_slow,
            "supported": fast_precisions(),
            "gpus": [device.name for device in tf.config.list_physical_devices("GPU")],
            "weights": _weight_counts(self._model),
            "odd_sizes": unaligned_layers(self._model)[:8],
        }

    def burst(self, part: str, seconds: float) -> float:
        """Run a part for about this time, besides warm-up, and return the seconds of one step.

        The parts are ``real`` steps; the model alone on a batch in memory (``model``), on a larger one (``larger``), on
        one of a usual size (``usual``), or with many steps per call (``graph``); batches without training (``input``).
        """
        if part in ("input", "real"):
            return (self._input if part == "input" else self._real).turn(seconds, whole=not self._cached)
        return steps.time_endless(self._part(part), seconds)

    def beginning(self) -> float:
        """Return how much longer the beginning of an epoch takes, in seconds; 0 if no whole epochs were run."""
        return self._real.beginning()

    def stages(self) -> dict[str, float]:
        """Return the seconds of a batch in each stage of the input alone, without a cache."""
        return steps.time_stages(self._source, self._variant.batch_size)

    def loops(self) -> list[Loop]:
        """Return loops and Python calls in the user's step and preprocessing, by line."""
        batch = self._batch(self._variant.batch_size)
        return scan_graphs(self._model, self._source, batch, Path(self._variant.module))

    def trace(self, folder: str, calls: int, lines: Mapping[int, Sequence[str]]) -> OperationTimes:
        """Save TensorFlow's trace of some real steps, and return their operation times; see `operation_times`."""
        tf.profiler.experimental.start(folder)
        try:
            self._real.run(calls)
        finally:
            tf.profiler.experimental.stop()
            self._real.stop()
        optimizer, layers = self._model.optimizer, {layer.name for layer in _inner_layers(self._model)}
        optimizers = {optimizer.name, getattr(optimizer, "inner_optimizer", optimizer).name}
        scopes = Scopes(self._model.name, layers, optimizers)
        return operation_times(Path(folder), calls * self._real.size, lines, scopes)

    def memory(self) -> dict[str, int]:
        """Return the peak memory in bytes of this process, and of each GPU."""
        peaks = {"process": peak_memory()}
        for device in tf.config.list_logical_devices("GPU"):
            peaks[device.name] = int(tf.config.experimental.get_memory_info(device.name)["peak"])
        return peaks

    def close(self) -> None:
        """Restore process-wide settings, and remove the cache."""
        self._open.close()

    def _batches(self, source: Source) -> Any:
        return source.shuffled(self._variant.batch_size, self._variant.seed).repeat(self._variant.repeated)

    def _part(self, part: str) -> steps.Epochs:
        if part not in self._parts:
            batch_size = self._variant.batch_size
            size = {"larger": LARGER * batch_size, "usual": USUAL}.get(part, batch_size)
            if part == "usual":
                self._check_memory(size)
            before = peak_memory()
            batches = tf.data.Dataset.from_tensors(self._batch(size)).repeat()
            count = STEPS_PER_CALL if part == "graph" else 1
            _set_steps_per_execution(self._model, count)
            self._parts[part] = steps.training_steps(self._model, batches, steps.ENDLESS, count)
            self._parts[part].run(1)
            self._memory[part] = peak_memory() - before
        return self._parts[part]

    def _check_memory(self, size: int) -> None:
        """Raise if a batch of this size might not fit: some batches are small because their examples are large."""
        for part in ("model", "larger"):
            self._part(part)
        growth = max(0, self._memory["larger"] - self._memory["model"])
        per_example = growth / ((LARGER - 1) * self._variant.batch_size)
        if per_example * size > psutil.virtual_memory().available / 2:
            raise MemoryError(f"a batch of {size} might not fit into memory")

    @functools.lru_cache(maxsize=4)  # noqa: B019  (one worker lives as long as its process)
    def _batch(self, size: int) -> Any:
        return self._source.first_batch(size, full=True)

    @functools.cached_property
    def _input(self) -> steps.Epochs:
        """Batches from a second pipeline with its own cache, which is filled."""
        folder = self._source.folder / "alone"
        folder.mkdir()
        source = replace(self._source, folder=folder)
        batches = steps.Epochs(self._batches(source), next, self._epoch)
        batches.fill(MAX_FILL_S, cached=self._cached)
        return batches


def _vectorize_maps() -> None:
    """Replace ``tf.map_fn`` and ``keras.ops.map`` by vectorized forms, for modules that are imported later."""

    def map_fn(fn: Any, elems: Any, *_: Any, **__: Any) -> Any:
        return tf.vectorized_map(fn, elems, fallback_to_while_loop=False)

    def keras_map(f: Any, xs: Any) -> Any:
        return tf.vectorized_map(f, xs, fallback_to_while_loop=False)

    tf.map_fn, keras.ops.map = map_fn, keras_map


def _set_steps_per_execution(model: Any, count: int) -> None:
    if keras_models.is_keras_2(model):
        model._configure_steps_per_execution(count)
    else:
        model.steps_per_execution = count


def _inner_layers(model: Any) -> list[Any]:
    """Return the layers of a model, and of models inside it, that have no layers."""
    layers = model._flatten_layers(recursive=True, include_self=False)
    return [layer for layer in layers if not hasattr(layer, "layers")]


def _weight_counts(model: Any) -> dict[str, int]:
    """Return the number of trained weights, by layer that has some, the largest first."""
    counts = Counter[str]()
    for layer in _inner_layers(model):
        counts[layer.name] = sum(math.prod(variable.shape) for variable in layer.trainable_variables)
    return dict((+counts).most_common())
