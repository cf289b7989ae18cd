"""Learning under masks, with what the user's module compiles; the best epoch at the final sparsity is kept."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.masked_training import Masks
from tfopt.components.prune.request import Request
from tfopt.components.prune.schedule import Schedule, plan
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.fit_loop import fit_model
from tfopt.training.second_round import SECOND_ROUND

GRADUAL = ("magnitude", "block")  # a ratio has no degrees

log = logging.getLogger("tfopt")


def fine_tune(
    model: Any, kernels: Sequence[Prunable], rounds: FineTuner, request: Request
) -> tuple[Any, dict[str, Any]]:
    """Return the model, plain again, with the best weights it had at its final sparsity, and what that took.

    Args:
        model: Loaded and compiled; its weights change.
        kernels: Its kernels, those that are not left as they are to be pruned; none to learn without masks.
        rounds: What to learn with; a second round is at the same zeros.
        request: How to learn.
    """
    before = rounds.evaluate(model)
    steps = -(-rounds.sources["train"].count // request.batch_size)
    kind = request.schedule if request.pattern.name in GRADUAL else "constant"
    schedule = plan(kind, request.sparsity, steps=steps * request.epochs)

    def tuned(model: Any, schedule: Schedule, folder: Path, epochs: int, seed: int) -> tuple[Any, dict[str, Any]]:
        learner, callbacks, finish = _under_masks(model, kernels, rounds, schedule, request)
        history = fit_model(
            learner,
            rounds.user,
            rounds.sources,
            folder,
            epochs=epochs,
            batch_size=request.batch_size,
            patience=epochs,
            seed=seed,
            start_from_epoch=(schedule.end - 1) // steps,
            first_callbacks=callbacks,
        )
        plain = finish()
        return plain if plain is model else rounds.compile(plain), history

    def again(model: Any) -> tuple[Any, dict[str, Any]]:
        same = plan("constant", request.sparsity, steps=1)  # the weakest weights are those that are zero
        return tuned(
            rounds.compile(model), same, rounds.folder / SECOND_ROUND, request.recovery.epochs, request.seed + 1
        )

    model, history = tuned(model, schedule, rounds.folder, request.epochs, request.seed)
    model, later, recovery = rounds.second.run(model, again)
    history = later or history
    best = history["epochs"][history["best_epoch"] - 1]
    after = {name: best[name] for name in before if best.get(name) is not None}
    log.info("%s", ", ".join(f"{name} {before[name]:.4g} -> {after[name]:.4g}" for name in sorted(after)))
    facts = {"best_epoch": history["best_epoch"], "epochs": request.recovery.epochs if later else request.epochs}
    return model, {**facts, "before": before, "after": after, **({"recovery": recovery} if recovery else {})}


def _under_masks(
    model: Any, kernels: Sequence[Prunable], rounds: FineTuner, schedule: Schedule, request: Request
) -> tuple[Any, list[Any], Callable[[], Any]]:
    """What learns, the callbacks that prune it in time, and what makes a plain model of it at the end."""
    masks = Masks(kernels, request.pattern)
    if not masks.kernels:
        return model, [], lambda: model
    if keras_models.is_keras_2(model):
        from tfopt.components.prune import tfmot as toolkit

        wrapped = rounds.compile(toolkit.wrap(model, kernels, request.pattern, schedule))
        return wrapped, [toolkit.callback()], lambda: toolkit.strip(wrapped)
    masks.guard(model.optimizer)

    def finish() -> Any:
        masks.apply()  # the best epoch's weights may have been put back
        return model

    return model, [masks.callback(model, schedule)], finish
