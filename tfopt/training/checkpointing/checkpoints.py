"""Checkpoints of a training: save its whole state to disk, and resume a killed training where it stopped.

Keras's BackupAndRestore repeats the interrupted epoch with another order of the examples, and loses the state of early
stopping. Here a checkpoint holds every variable (weights, optimizer, random generators, metrics), the best weights, the
history, and the position in the data; the order of the examples follows from the seed and the number of the epoch.
"""

import contextlib
import hashlib
import io
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt import keras_models
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.training.checkpointing.checkpoint_folder import CheckpointFolder

MAX_CHECKPOINTS = 2  # the newest, and the one before in case the newest is damaged
EARLY_STOPPING_STATE = ("wait", "stopped_epoch", "best", "best_epoch")  # attributes besides the weights
ITERATORS = {"keras": 2, "tf_keras": 1}  # that `fit` creates per epoch; Keras 3 creates one more at the end of an epoch

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one training, identified by everything that determines its weights."""

    def __init__(self, folder: str, identity: Mapping[str, str], every_s: float) -> None:
        """Create the folder of this training in one for all trainings: a path, or an address in an object store.

        The identity is what determines the weights, by name: digests of examples and module, parameters, versions.
        There is a checkpoint after each epoch, and within an epoch every ``every_s`` seconds. Raise ComponentError if
        the folder cannot be created.
        """
        self._identity, self._every_s = dict(identity), every_s
        key = hashlib.sha256(json.dumps(self._identity, sort_keys=True).encode()).hexdigest()[:16]
        try:
            self._folder = CheckpointFolder(folder, key)
            self.path = self._folder.address  # of this training
            self._warn_of_others()
            self._folder.write_identity(self._identity)
        except OSError as error:
            received = f"checkpoints={folder}: {first_line(error)}"
            fix = "name a mounted volume, or an address such as gs://BUCKET/FOLDER"
            raise ComponentError(received, "a folder that can be written, and that outlives the step", fix) from error

    def attach(self, model: Any, monitor: Any, stopping: Any) -> None:
        """Set the objects whose state is saved: the compiled model, the history, and the early stopping of one fit."""
        self._model, self._monitor, self._stopping = model, monitor, stopping
        self._epoch, self._batches, self._skip, self._saved = 0, 0, 0, time.monotonic()
        self.position = ""  # the epoch and batch of the newest checkpoint, in words

    def resume(self, batches: Any, batch: tuple[Any, Any]) -> int:
        """Restore the newest undamaged checkpoint, if there is one, and return the epoch to start with.

        `fit` will read the batches, whose order differs in each epoch. One training step is made with the batch to
        create all variables; the restored state replaces its effect. Raise ComponentError if the checkpoint belongs to
        another model.
        """
        state = tf.train.get_checkpoint_state(self._folder.path)
        if not state:
            return 0
        self._model.train_on_batch(*batch)
        self._create_manager()
        if not any(self._restore(path) for path in reversed(state.all_model_checkpoint_paths)):
            return 0
        progress = self._read_progress()
        self._epoch, self._skip = progress["epoch"], progress["batches"]
        self._monitor.replay(progress["history"])
        self._set_position(progress)
        log.info("resuming after %s, from the checkpoint in %s", self.position, self.path)
        for _ in range(self._epoch * ITERATORS[keras_models.library(self._model).__name__]):
            iter(batches)  # reads nothing: it only draws the seed of an epoch's order
        self._skip_trained_batches()
        return int(progress["end"] or self._epoch)

    def callback(self) -> Any:
        """Return the callback that saves checkpoints; it must be the last in the list."""
        return keras_models.library(self._model).callbacks.LambdaCallback(
            on_train_begin=self._restore_early_stopping,
            on_epoch_begin=self._begin_epoch,
            on_train_batch_end=self._end_call,
            on_epoch_end=lambda epoch, logs=None: self._save(epoch + 1, 0),
        )

    def remove(self) -> None:
        """Delete the checkpoints of this training."""
        self._folder.remove()

    def _warn_of_others(self) -> None:
        for other, identity in self._folder.identities():
            names = {*identity, *self._identity}
            different = sorted(name for name in names if identity.get(name) != self._identity.get(name))
            if different:
                log.warning("%s belongs to another training and is not used: other %s", other, ", ".join(different))

    def _create_manager(self) -> None:
        """Create the checkpoint manager. All variables must exist."""
        self._progress = tf.Variable(b"", dtype=tf.string)
        checkpoint = tf.train.Checkpoint(progress=self._progress, variables=_state_variables(self._model))
        self._manager = tf.train.CheckpointManager(checkpoint, self._folder.path, max_to_keep=MAX_CHECKPOINTS)

    def _restore(self, path: str) -> bool:
        try:
            self._manager.checkpoint.restore(path).assert_consumed()
        except (tf.errors.DataLossError, tf.errors.NotFoundError, IndexError) as error:
            log.warning("%s is damaged and is not used: %s", path, first_line(error))
            return False
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            received = f"checkpoint {path}: {first_line(error)}"
            fix = f"build_model() returned another model then; remove {self.path} to start from the beginning"
            raise ComponentError(received, "a checkpoint of the same model", fix) from error
        self._path = path
        return True

    def _restore_early_stopping(self, logs: object = None) -> None:
        """Restore the state of early stopping, which it resets when training begins."""
        if not hasattr(self, "_manager"):
            return
        progress = self._read_progress()
        for name in EARLY_STOPPING_STATE:
            setattr(self._stopping, name, progress[name])
        self._stopping.best_weights = progress["best_weights"]

    def _begin_epoch(self, epoch: int, logs: object = None) -> None:
        self._epoch, self._batches = epoch, 0
        if self._skip:
            self._restore(self._path)  # again: Keras has reset the metrics of the epoch that is resumed

    def _skip_trained_batches(self) -> None:
        """Make `fit` read, without training, the batches that the interrupted epoch had trained on."""
        if not self._skip:
            return
        self._model.make_train_function()
        train = self._model.train_function

        def step(iterator: Any) -> Any:
            if self._batches >= self._skip:
                self._skip = 0
                self._model.train_function = train
                return train(iterator)
            for _ in range(steps_per_execution(self._model)):
                next(iterator)
            return {"loss": 0.0}

        self._model.train_function = step

    def _end_call(self, batch: int, logs: object = None) -> None:
        self._batches += 1
        is_due = time.monotonic() - self._saved >= self._every_s
        calls_per_epoch = math.ceil(self._monitor.steps / steps_per_execution(self._model))
        if is_due and self._skip < self._batches < calls_per_epoch:
            self._save(self._epoch, self._batches)

    def _save(self, epoch: int, batches: int) -> None:
        if not all(bool(tf.reduce_all(tf.math.is_finite(weight))) for weight in self._model.trainable_variables):
            return  # the next loss will be NaN and end the training; the last good checkpoint stays
        if not hasattr(self, "_manager"):
            self._create_manager()
        progress = {"epoch": epoch, "batches": batches, "history": self._monitor.history}
        progress["end"] = self._monitor.epochs if self._model.stop_training else 0
        progress |= {name: getattr(self._stopping, name) for name in EARLY_STOPPING_STATE}
        progress["best"] = None if progress["best"] is None else float(progress["best"])
        self._progress.assign(_serialize(progress, self._stopping.best_weights))
        self._manager.save()
        self._folder.upload()
        self._saved = time.monotonic()
        self._set_position(progress)

    def _set_position(self, progress: Mapping[str, Any]) -> None:
        batch = f", batch {progress['batches']}" if progress["batches"] else ""
        self.position = f"epoch {progress['epoch'] + bool(batch)}{batch}"

    def _read_progress(self) -> dict[str, Any]:
        with np.load(io.BytesIO(self._progress.numpy())) as arrays:
            progress: dict[str, Any] = json.loads(str(arrays["state"]))
            count = progress.pop("weights")
            return progress | {"best_weights": None if count is None else [arrays[f"arr_{i}"] for i in range(count)]}


def steps_per_execution(model: Any) -> int:
    """Return the number of batches in a call of the training function of a Keras 2 or Keras 3 model."""
    return int(getattr(model, "steps_per_execution", None) or model._steps_per_execution)


def _serialize(progress: Mapping[str, Any], weights: list[Any] | None) -> bytes:
    file = io.BytesIO()
    count = None if weights is None else len(weights)
    np.savez(file, *(weights or []), state=json.dumps({**progress, "weights": count}))
    return file.getvalue()


def _state_variables(model: Any) -> list[Any]:
    """Return every variable that the next training step depends on, in a fixed order; one step must have been made."""
    if not keras_models.is_keras_2(model):
        keras_3 = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        return [variable.value for variable in keras_3]
    optimizer = model.optimizer.variables
    generators = [
        getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in model._flatten_layers()
    ]
    states = [generator.state for generator in generators if generator is not None]
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer), *metrics, *states]


@contextlib.contextmanager
def savable_generators(enabled: bool) -> Iterator[None]:
    """Make Keras 2's dropout draw from variables while the block runs: the state of its ops cannot be saved."""
    if not enabled:
        yield
        return
    from tf_keras.backend import experimental as backend

    was_on = backend.is_tf_random_generator_enabled()
    backend.enable_tf_random_generator()
    try:
        yield
    finally:
        if not was_on:
            backend.disable_tf_random_generator()
