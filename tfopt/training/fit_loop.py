"""The loop: epochs with validation, stopped early or by a loss that is no number any more, told line by line."""

import json
import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfopt.errors import ComponentError, first_line
from tfopt.keras_models import io as keras_models
from tfopt.training.checkpoints import Checkpoints
from tfopt.training.dataset import Source
from tfopt.training.device_memory import ran_out
from tfopt.training.distribution import fed, served
from tfopt.training.tensorboard import ScalarLog
from tfopt.training.user_module import UserModule

MARKED = 20  # steps that are timed one by one

log = logging.getLogger("tfopt")


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
    more: Sequence[Any] = (),
    checkpoints: Checkpoints | None = None,
    class_weight: Mapping[int, float] | None = None,
    timed: bool = False,
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
        checkpoints: Where the state is kept meanwhile, and taken up from.
        class_weight: How much an example of each class counts in the loss; 1 when None.
        timed: Whether the history says how long the first step took to compile, ``compile_s``.

    Raises:
        ComponentError: When a loss is NaN or infinite, or the model raises.
    """
    callbacks = keras_models.library(model).callbacks
    board = ScalarLog(folder / "logs")
    watch = Watch(epochs, math.ceil(sources["train"].count / batch_size), board)
    stopping = callbacks.EarlyStopping(
        "val_loss", mode="min", patience=patience, restore_best_weights=True, start_from_epoch=start_from_epoch
    )
    each = {} if served(model) else {"on_train_batch_end": watch.batch}
    told = callbacks.LambdaCallback(on_epoch_begin=watch.begin, on_epoch_end=watch.end, **each)
    batches, last = sources["train"].shuffled(batch_size, seed), []
    try:
        first = 0
        if checkpoints:
            checkpoints.follow(model, watch, stopping)
            first = checkpoints.resume(batches, sources["eval"].one(batch_size))
            last = [checkpoints.callback()]
        model.fit(
            **fed(model, batches, sources["eval"].in_order()),
            initial_epoch=first,
            epochs=epochs,
            callbacks=[*more, told, stopping, *last],
            class_weight=class_weight,
            shuffle=False,  # the dataset does that
            verbose=0,
        )
    except ComponentError as error:
        if checkpoints and checkpoints.last:
            kept = f"; what it was after {checkpoints.last} is kept in {checkpoints.path}"
            raise ComponentError(error.received, error.expected, error.fix + kept) from error
        raise
    except Exception as error:
        raise (_too_large(error, batch_size) or _explained(error, user)) from error
    finally:
        board.close()
    best = int(stopping.best_epoch) + 1
    log.info("kept the weights of epoch %d of %d", best, len(watch.history))
    history = {"best_epoch": best, "stopped_early": len(watch.history) < epochs, "epochs": watch.history}
    history |= {"compile_s": watch.compile_s()} if timed else {}
    (folder / "history.json").write_text(json.dumps(history, indent=1, allow_nan=False) + "\n")
    return history


class Watch:
    """Tells each epoch, and ends training at the first loss that is not finite."""

    def __init__(self, epochs: int, steps: int, board: ScalarLog) -> None:
        """Count up to so many epochs of so many steps, and write them on the board too."""
        self.epochs, self.steps, self.board = epochs, steps, board
        self.history: list[dict[str, float | None]] = []
        self._started = 0.0
        self._marks: list[float] = []

    def replay(self, history: Sequence[dict[str, float | None]]) -> None:
        """Begin with the epochs of a training that goes on."""
        for epoch, numbers in enumerate(history):
            self.history.append(dict(numbers))
            self.board.write(epoch, {name: value for name, value in numbers.items() if value is not None})

    def begin(self, epoch: int, logs: object = None) -> None:
        """Start the clock."""
        self._started = time.monotonic()
        self._marks = self._marks or [self._started]

    def batch(self, batch: int, logs: Mapping[str, float]) -> None:
        """Look at the running loss."""
        self._check(logs, "loss", f"epoch {len(self.history) + 1}, batch {batch + 1}")
        if len(self._marks) <= MARKED:
            self._marks.append(time.monotonic())

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

    def compile_s(self) -> float:
        """What the first step took longer than those after it usually do: tracing and compiling, seconds."""
        took = [end - start for start, end in pairwise(self._marks)]
        return max(0.0, took[0] - statistics.median(took[1:])) if len(took) > 1 else 0.0

    def _check(self, logs: Mapping[str, float], name: str, where: str) -> None:
        if not math.isfinite(logs[name]):
            raise ComponentError(
                f"training: the loss is {float(logs[name])} in {where}",
                "a finite loss",
                "lower the learning rate, scale the inputs in preprocess(), or guard the loss against log(0) and 1/0",
            )


def _too_large(error: Exception, batch_size: int) -> ComponentError | None:
    """What to do when memory ran out; None when that was not the matter."""
    out = ran_out(error)
    if out is None:
        return None
    return ComponentError(
        f"training: out of memory at batch_size={batch_size}: {first_line(out)}",
        "a step that fits in memory",
        "pass batch_size=0 for the largest that fits, or a smaller one with gradient_accumulation"
        if batch_size > 1
        else "make the model or its inputs smaller, pass precision=mixed_bfloat16, or take a machine with more memory",
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
