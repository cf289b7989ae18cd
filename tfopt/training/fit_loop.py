"""Training loop with validation, early stopping, and termination on a loss that is not finite."""

import contextlib
import json
import logging
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import tensorflow as tf

from tfopt import keras_models
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.training.checkpointing.checkpoints import Checkpoints
from tfopt.training.compute.device_memory import LESS_MEMORY, find_out_of_memory
from tfopt.training.compute.distribution import fit_data, uses_parameter_servers
from tfopt.training.datasets.dataset import Source
from tfopt.training.user_module import UserModule

TIMED_STEPS = 20  # steps whose time is measured one by one

log = logging.getLogger(__name__)


class History(TypedDict):
    """The content of ``history.json``: the best epoch, counted from 1, and the metrics of each epoch."""

    best_epoch: int
    stopped_early: bool
    epochs: list[dict[str, float | None]]
    compile_s: NotRequired[float]


def fit_model(
    model: Any,
    user: UserModule,
    sources: Mapping[str, Source],
    folder: Path,
    *,
    epochs: int,
    batch_size: int,
    patience: int,
    seed: int,
    start_from_epoch: int = 0,
    first_callbacks: Sequence[Any] = (),
    checkpoints: Checkpoints | None = None,
    class_weight: Mapping[int, float] | None = None,
    timed: bool = False,
) -> History:
    """Train a compiled model on ``train``, restore the weights of its best epoch on ``eval``, and return its history.

    Training stops after ``patience`` epochs without a lower validation loss; epochs before ``start_from_epoch``,
    counted from 0, are never the best. The seed determines the order of the examples. The first callbacks run before
    all others. ``history.json`` and ``logs/`` are written into the folder; with ``timed``, the history has the compile
    time of the first step, as ``compile_s``. If the model raises, the error quotes the user's module.

    Raises:
        ComponentError: If a loss is NaN or infinite, or the model raises.
    """
    monitor = TrainingMonitor(epochs, math.ceil(sources["train"].count / batch_size), folder / "logs")
    stopping = keras_models.library(model).callbacks.EarlyStopping(
        "val_loss", mode="min", patience=patience, restore_best_weights=True, start_from_epoch=start_from_epoch
    )
    batches, initial_epoch, last_callbacks = sources["train"].shuffled(batch_size, seed), 0, []
    with contextlib.closing(monitor), _explained_errors(user, batch_size, checkpoints):
        if checkpoints:
            checkpoints.attach(model, monitor, stopping)
            initial_epoch = checkpoints.resume(batches, sources["eval"].first_batch(batch_size))
            last_callbacks = [checkpoints.callback()]
        _create_variables(model, batches)
        model.fit(
            **fit_data(model, batches, sources["eval"].in_order()),
            initial_epoch=initial_epoch,
            epochs=epochs,
            callbacks=[*first_callbacks, monitor.callback(model), stopping, *last_callbacks],
            class_weight=class_weight,
            shuffle=False,  # the dataset shuffles
            verbose=0,
        )
    best = int(stopping.best_epoch) + 1
    log.info("restored the weights of epoch %d of %d", best, len(monitor.history))
    history: History = {"best_epoch": best, "stopped_early": len(monitor.history) < epochs, "epochs": monitor.history}
    if timed:
        history["compile_s"] = monitor.compile_seconds()
    (folder / "history.json").write_text(json.dumps(history, indent=1, allow_nan=False) + "\n")
    return history


def evaluate_model(model: Any, sources: Mapping[str, Source]) -> dict[str, float]:
    """Return the loss and metrics of a compiled model on ``eval``, named ``val_…`` as in the history of `fit_model`."""
    return {f"val_{name}": value for name, value in evaluate_source(model, sources["eval"]).items()}


def evaluate_source(model: Any, source: Source) -> dict[str, float]:
    """Return the loss and metrics of a compiled model on a source."""
    metrics = model.evaluate(source.in_order(), return_dict=True, verbose=0)
    return {name: float(value) for name, value in metrics.items()}


def _create_variables(model: Any, batches: Any) -> None:
    """Create the variables of the optimizer and the metrics, so that the training function is traced once.

    Keras 3 creates them while the first step is traced, unless it has a distribution strategy; TensorFlow traces a
    function that created variables a second time, which takes seconds for a large model.
    """
    if keras_models.is_keras_2(model) or model.run_eagerly or model._distribute_strategy:
        return
    # It traces the model with placeholders, which some inputs and metrics refuse; then the first step creates the rest.
    with contextlib.suppress(Exception):
        model._symbolic_build(data_batch=batches.element_spec)


class TrainingMonitor:
    """Record and log each epoch, and raise at the first loss that is not finite.

    The event files for TensorBoard have the layout of Keras: ``train`` and ``validation``, tagged ``epoch_loss`` etc.
    They are written with TensorFlow alone, because Keras's own callback requires the tensorboard package.
    """

    def __init__(self, epochs: int, steps: int, logs: Path) -> None:
        """Set the number of epochs and the steps of an epoch, and create the event files in the folder ``logs``."""
        self.epochs, self.steps = epochs, steps
        self.history: list[dict[str, float | None]] = []
        self._writers = {split: tf.summary.create_file_writer(str(logs / split)) for split in ("train", "validation")}
        self._epoch_start = 0.0
        self._step_ends: list[float] = []

    def callback(self, model: Any) -> Any:
        """Return the callback for `fit`. Parameter servers report no loss of a batch."""
        per_batch = {} if uses_parameter_servers(model) else {"on_train_batch_end": self._end_batch}
        return keras_models.library(model).callbacks.LambdaCallback(
            on_epoch_begin=self._begin_epoch, on_epoch_end=self._end_epoch, **per_batch
        )

    def replay(self, history: Sequence[dict[str, float | None]]) -> None:
        """Restore the epochs of a training that is resumed."""
        for epoch, metrics in enumerate(history):
            self.history.append(dict(metrics))
            self._write_scalars(epoch, {name: value for name, value in metrics.items() if value is not None})

    def compile_seconds(self) -> float:
        """Return the time of the first step minus the median of the next ones: tracing and compilation, in seconds."""
        durations = [end - start for start, end in pairwise(self._step_ends)]
        return max(0.0, durations[0] - statistics.median(durations[1:])) if len(durations) > 1 else 0.0

    def close(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()

    def _begin_epoch(self, epoch: int, logs: object = None) -> None:
        self._epoch_start = time.monotonic()
        self._step_ends = self._step_ends or [self._epoch_start]

    def _end_batch(self, batch: int, logs: Mapping[str, float]) -> None:
        self._check_loss(logs, "loss", f"epoch {len(self.history) + 1}, batch {batch + 1}")
        if len(self._step_ends) <= TIMED_STEPS:
            self._step_ends.append(time.monotonic())

    def _end_epoch(self, epoch: int, logs: Mapping[str, float]) -> None:
        self._check_loss(logs, "val_loss", f"the validation after epoch {epoch + 1}")
        loss_first = sorted(logs, key=lambda name: (name.startswith("val_"), "loss" not in name))
        metrics = {name: float(logs[name]) for name in loss_first}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self.history.append({name: finite.get(name) for name in metrics})  # JSON has no NaN: such a metric is null
        self._write_scalars(epoch, finite)
        text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        log.info("epoch %d/%d: %s (%.1f s)", epoch + 1, self.epochs, text, time.monotonic() - self._epoch_start)

    def _write_scalars(self, epoch: int, metrics: Mapping[str, float]) -> None:
        plugin_data = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin_data)
        for name, value in metrics.items():
            with self._writers["validation" if name.startswith("val_") else "train"].as_default():
                tf.summary.write(f"epoch_{name.removeprefix('val_')}", tf.constant(value), epoch, metadata=metadata)

    def _check_loss(self, logs: Mapping[str, float], name: str, where: str) -> None:
        if not math.isfinite(logs[name]):
            fix = "lower the learning rate, scale the inputs in preprocess(), or guard the loss against log(0) and 1/0"
            raise ComponentError(f"training: the loss is {float(logs[name])} in {where}", "a finite loss", fix)


@contextlib.contextmanager
def _explained_errors(user: UserModule, batch_size: int, checkpoints: Checkpoints | None) -> Iterator[None]:
    """Convert errors of a training to ComponentErrors that name the cause, and the saved state if there is one."""
    try:
        yield
    except ComponentError as error:
        if checkpoints and checkpoints.position:
            saved = f"; the state after {checkpoints.position} is saved in {checkpoints.path}"
            raise ComponentError(error.received, error.expected, error.fix + saved) from error
        raise
    except Exception as error:
        if cause := find_out_of_memory(error):
            smaller = "pass batch_size=0 for the largest that fits, or a smaller one with gradient_accumulation"
            received = f"training: out of memory at batch_size={batch_size}: {first_line(cause)}"
            expected = "a step that fits in memory"
            raise ComponentError(received, expected, smaller if batch_size > 1 else LESS_MEMORY) from error
        traceback = user.quote(error)
        reason = f"training: {type(error).__name__}: {first_line(error)}"
        received = f"training with {user.path} raised\n{traceback}" if traceback else reason
        fix = "fix the model, or its loss and metrics; --debug shows the whole traceback"
        raise ComponentError(received, "a model that trains on batches of these examples", fix) from error
