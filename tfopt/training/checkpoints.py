"""Training that outlives its process: all of its state on disk, now and then, and taken up again where it was.

Keras's BackupAndRestore begins the interrupted epoch anew, in another order of the examples, and forgets what early
stopping knew. Here a checkpoint holds every variable (weights, optimizer, random generators, metrics), the best
weights, the history, and the place in the data; the order of the examples follows from the seed and the epoch's number.
"""

import hashlib
import io
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from tfopt.errors import ComponentError, first_line
from tfopt.keras_models import io as keras_models
from tfopt.training.training_state import variables

KEPT = 2  # the last, and the one before in case that was torn
STOPPING = ("wait", "stopped_epoch", "best", "best_epoch")  # what EarlyStopping knows, besides the weights
ITERATORS = {"keras": 2, "tf_keras": 1}  # that ``fit`` makes for each epoch; Keras 3 makes one more at its end

log = logging.getLogger("tfopt")


class Checkpoints:
    """Those of one training, which is known by what decides its weights."""

    def __init__(self, folder: str, about: Mapping[str, str], every_s: float) -> None:
        """Name the folder; nothing is written yet.

        Args:
            folder: Where those of many trainings lie, each in a folder of its own. Anything that TensorFlow can write.
            about: What decides the weights, by name: the digests of examples and module, the parameters, versions.
            every_s: Seconds between two checkpoints within an epoch; there is one after each epoch too.

        Raises:
            ComponentError: When there can be no such folder.
        """
        import tensorflow as tf

        self._about, self._every_s = dict(about), every_s
        key = hashlib.sha256(json.dumps(self._about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder, self.path = folder.rstrip("/"), f"{folder.rstrip('/')}/{key}"
        try:
            self._tell_of_others()
            tf.io.gfile.makedirs(self.path)
            with tf.io.gfile.GFile(f"{self.path}/about.json", "w") as file:
                file.write(json.dumps(self._about, indent=1) + "\n")
        except (tf.errors.OpError, OSError) as error:
            raise ComponentError(
                f"checkpoints={folder}: {first_line(error)}",
                "a folder that can be written, and that outlives the step",
                "name a mounted volume, or an address that TensorFlow can write, such as gs://BUCKET/FOLDER",
            ) from error

    def follow(self, model: Any, watch: Any, stopping: Any) -> None:
        """Remember whose state it is: the compiled model, the history, and the early stopping of one ``fit``."""
        self._model, self._watch, self._stopping = model, watch, stopping
        self._epoch, self._batches, self._skip, self._saved = 0, 0, 0, time.monotonic()
        self.last = ""  # where the last checkpoint was made, in words

    def resume(self, batches: Any, batch: tuple[Any, Any]) -> int:
        """Take up the newest whole checkpoint, if there is one, and return the epoch to begin with.

        Args:
            batches: What ``fit`` will read; another order in each epoch.
            batch: Some inputs and labels: one step is made with them, which makes all variables, and is then undone.

        Raises:
            ComponentError: When the checkpoint is of another model.
        """
        import tensorflow as tf

        found = tf.train.get_checkpoint_state(self.path)
        if not found:
            return 0
        self._model.train_on_batch(*batch)
        self._make()
        if not any(self._restored(path) for path in reversed(found.all_model_checkpoint_paths)):
            return 0
        state = self._read()
        self._epoch, self._skip = state["epoch"], state["batches"]
        self._watch.replay(state["history"])
        self._say(state)
        log.info("going on after %s, from the checkpoint in %s", self.last, self.path)
        for _ in range(self._epoch * ITERATORS[keras_models.library(self._model).__name__]):
            iter(batches)  # nothing is read: it only draws the seed of an order
        self._fast_forward()
        return int(state["end"] or self._epoch)

    def callback(self) -> Any:
        """What ``fit`` calls, after all others."""
        return keras_models.library(self._model).callbacks.LambdaCallback(
            on_train_begin=lambda logs=None: self._remember(),
            on_epoch_begin=lambda epoch, logs=None: self._begin(epoch),
            on_train_batch_end=lambda batch, logs=None: self._step(),
            on_epoch_end=lambda epoch, logs=None: self._save(epoch + 1, 0),
        )

    def remove(self) -> None:
        """Remove them all, once what they were for is done."""
        import tensorflow as tf

        tf.io.gfile.rmtree(self.path)

    def _tell_of_others(self) -> None:
        import tensorflow as tf

        for other in tf.io.gfile.glob(f"{self.folder}/*/about.json"):
            with tf.io.gfile.GFile(other) as file:
                about = json.loads(file.read())
            differs = sorted(name for name in {*about, *self._about} if about.get(name) != self._about.get(name))
            if differs:
                log.warning("%s is of another training and is not used: other %s", other, ", ".join(differs))

    def _make(self) -> None:
        """The checkpoint, when all variables are there."""
        import tensorflow as tf

        self._progress = tf.Variable(b"", dtype=tf.string)
        whole = tf.train.Checkpoint(progress=self._progress, variables=variables(self._model))
        self._manager = tf.train.CheckpointManager(whole, self.path, max_to_keep=KEPT)

    def _restored(self, path: str) -> bool:
        import tensorflow as tf

        try:
            self._manager.checkpoint.restore(path).assert_consumed()
        except (tf.errors.DataLossError, tf.errors.NotFoundError, IndexError) as error:
            log.warning("%s is damaged and is not used: %s", path, first_line(error))
            return False
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ComponentError(
                f"checkpoint {path}: {first_line(error)}",
                "a checkpoint of this very model",
                f"build_model() gave another model then; remove {self.path} to start anew",
            ) from error
        self._path = path
        return True

    def _remember(self) -> None:
        """What early stopping knew, after it has forgotten it."""
        if not hasattr(self, "_manager"):
            return
        state = self._read()
        for name in STOPPING:
            setattr(self._stopping, name, state[name])
        self._stopping.best_weights = state["best_weights"]

    def _begin(self, epoch: int) -> None:
        self._epoch, self._batches = epoch, 0
        if self._skip:
            self._restored(self._path)  # once more: the metrics of the epoch that goes on were reset

    def _fast_forward(self) -> None:
        """Let ``fit`` read past the batches that were learnt before, and not learn them again."""
        if not self._skip:
            return
        self._model.make_train_function()
        learn = self._model.train_function

        def step(iterator: Any) -> Any:
            if self._batches >= self._skip:
                self._skip = 0
                self._model.train_function = learn
                return learn(iterator)
            for _ in range(self._size()):
                next(iterator)
            return {"loss": 0.0}

        self._model.train_function = step

    def _step(self) -> None:
        self._batches += 1
        due = time.monotonic() - self._saved >= self._every_s
        if due and self._batches > self._skip and self._batches < self._calls():
            self._save(self._epoch, self._batches)

    def _calls(self) -> int:
        """Calls of the train function in an epoch."""
        return -(-int(self._watch.steps) // self._size())

    def _size(self) -> int:
        """Batches that one call learns."""
        return int(getattr(self._model, "steps_per_execution", None) or self._model._steps_per_execution)

    def _save(self, epoch: int, batches: int) -> None:
        import tensorflow as tf

        if not all(bool(tf.reduce_all(tf.math.is_finite(one))) for one in self._model.trainable_variables):
            return  # the next loss will say so; the last good checkpoint stays
        if not hasattr(self, "_manager"):
            self._make()
        state = {"epoch": epoch, "batches": batches, "history": self._watch.history}
        state["end"] = self._watch.epochs if self._model.stop_training else 0
        state |= {name: getattr(self._stopping, name) for name in STOPPING}
        state["best"] = None if state["best"] is None else float(state["best"])
        self._progress.assign(_packed(state, self._stopping.best_weights))
        self._manager.save()
        self._saved = time.monotonic()
        self._say(state)

    def _say(self, state: Mapping[str, Any]) -> None:
        place = f", batch {state['batches']}" if state["batches"] else ""
        self.last = f"epoch {state['epoch'] + bool(place)}{place}"

    def _read(self) -> dict[str, Any]:
        return _unpacked(self._progress.numpy())


def _packed(state: Mapping[str, Any], weights: list[Any] | None) -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.savez(file, *(weights or []), state=json.dumps({**state, "weights": None if weights is None else len(weights)}))
    return file.getvalue()


def _unpacked(data: bytes) -> dict[str, Any]:
    import numpy as np

    with np.load(io.BytesIO(data)) as arrays:
        state: dict[str, Any] = json.loads(str(arrays["state"]))
        count = state.pop("weights")
        return state | {"best_weights": None if count is None else [arrays[f"arr_{at}"] for at in range(count)]}
