"""The loop: epochs with validation, stopped early or by a loss that is no number any more, told line by line."""

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.errors import ComponentError, first_line
from tfopt.training.dataset import Source
from tfopt.training.tensorboard import ScalarLog
from tfopt.training.user_module import UserModule

log = logging.getLogger("tfopt")


def learn(
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
    more: Sequence[Any] = (),
) -> dict[str, Any]:
    """Train the model, leave it with the weights of its best epoch, and return its history.

    Args:
        model: Compiled.
        user: Its module, to quote from when the model raises.
        sources: The splits ``train`` and ``eval``.
        folder: Where ``history.json`` and ``logs/`` are written.
        epochs: At most so many.
        batch_size: Examples per step.
        patience: Epochs without a lower validation loss before it stops.
        seed: Of the order of the examples.
        start_from_epoch: Epochs before this one, counted from 0, are never the best.
        more: Callbacks that go first.

    Raises:
        ComponentError: When a loss is NaN or infinite, or the model raises.
    """
    callbacks = keras_models.library(model).callbacks
    board = ScalarLog(folder / "logs")
    watch = Watch(epochs, board)
    stopping = callbacks.EarlyStopping(
        "val_loss", mode="min", patience=patience, restore_best_weights=True, start_from_epoch=start_from_epoch
    )
    told = callbacks.LambdaCallback(on_epoch_begin=watch.begin, on_train_batch_end=watch.batch, on_epoch_end=watch.end)
    try:
        model.fit(
            sources["train"].shuffled(batch_size, seed),
            validation_data=sources["eval"].in_order(),
            epochs=epochs,
            callbacks=[*more, told, stopping],
            shuffle=False,  # the dataset does that
            verbose=0,
        )
    except ComponentError:
        raise
    except Exception as error:
        raise _explained(error, user) from error
    finally:
        board.close()
    best = int(stopping.best_epoch) + 1
    log.info("kept the weights of epoch %d of %d", best, len(watch.history))
    history = {"best_epoch": best, "stopped_early": len(watch.history) < epochs, "epochs": watch.history}
    (folder / "history.json").write_text(json.dumps(history, indent=1, allow_nan=False) + "\n")
    return history


class Watch:
    """Tells each epoch, and ends training at the first loss that is not finite."""

    def __init__(self, epochs: int, board: ScalarLog) -> None:
        """Count up to so many epochs, and write them on the board too."""
        self.epochs, self.board = epochs, board
        self.history: list[dict[str, float | None]] = []
        self._started = 0.0

    def begin(self, epoch: int, logs: object = None) -> None:
        """Start the clock."""
        self._started = time.monotonic()

    def batch(self, batch: int, logs: Mapping[str, float]) -> None:
        """Look at the running loss."""
        self._check(logs, "loss", f"epoch {len(self.history) + 1}, batch {batch + 1}")

    def end(self, epoch: int, logs: Mapping[str, float]) -> None:
        """Keep the epoch's numbers and tell them."""
        self._check(logs, "val_loss", f"the validation after epoch {epoch + 1}")
        loss_first = sorted(logs, key=lambda name: (name.startswith("val_"), "loss" not in name))
        numbers = {name: float(logs[name]) for name in loss_first}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        self.history.append({name: finite.get(name) for name in numbers})  # a metric without a value is null in JSON
        self.board.write(epoch, finite)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        log.info("epoch %d/%d: %s (%.1f s)", epoch + 1, self.epochs, shown, time.monotonic() - self._started)

    def _check(self, logs: Mapping[str, float], name: str, where: str) -> None:
        if not math.isfinite(logs[name]):
            raise ComponentError(
                f"training: the loss is {float(logs[name])} in {where}",
                "a finite loss",
                "lower the learning rate, scale the inputs in preprocess(), or guard the loss against log(0) and 1/0",
            )


def _explained(error: Exception, user: UserModule) -> ComponentError:
    quoted = user.quote(error)
    return ComponentError(
        f"training with {user.path} raised\n{quoted}"
        if quoted
        else f"training: {type(error).__name__}: {first_line(error)}",
        "a model that learns from batches of these examples",
        "mend the model, or its loss and metrics; --debug shows the whole traceback",
    )
