"""Learning under masks, with what the user's module compiles; the best epoch at the final sparsity is kept."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfopt import keras_models
from tfopt.artifacts import Examples
from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.masking import Masks
from tfopt.components.prune.request import Request
from tfopt.components.prune.schedule import Schedule, plan
from tfopt.training.learning import learn
from tfopt.training.tuning import compile_like, scores, sources_of
from tfopt.training.user_module import UserModule

GRADUAL = ("magnitude", "block")  # a ratio has no degrees

log = logging.getLogger("tfopt")


def fine_tune(
    model: Any, kernels: Sequence[Prunable], user: UserModule, examples: Examples, folder: Path, request: Request
) -> tuple[Any, dict[str, Any]]:
    """Return the model, plain again, with the best weights it had at its final sparsity, and what that took.

    Args:
        model: Loaded; its weights change.
        kernels: Its kernels, those that are not left as they are to be pruned; none to learn without masks.
        user: The module it was trained with.
        examples: With the splits ``train`` and ``eval``.
        folder: Where ``history.json`` and ``logs/`` are written.
        request: How to learn.
    """
    compile_like(model, user, request.learning_rate)
    sources = sources_of(model, examples, request.label)
    before = scores(model, sources)
    steps = -(-sources["train"].count // request.batch_size)
    kind = request.schedule if request.pattern.name in GRADUAL else "constant"
    schedule = plan(kind, request.sparsity, steps=steps * request.epochs)
    learner, callbacks, finish = _under_masks(model, kernels, user, schedule, request)
    history = learn(
        learner,
        user,
        sources,
        folder,
        epochs=request.epochs,
        batch_size=request.batch_size,
        patience=request.epochs,
        seed=request.seed,
        start_from_epoch=(schedule.end - 1) // steps,
        more=callbacks,
    )
    best = history["epochs"][history["best_epoch"] - 1]
    after = {name: best[name] for name in before if best.get(name) is not None}
    log.info("%s", ", ".join(f"{name} {before[name]:.4g} -> {after[name]:.4g}" for name in sorted(after)))
    return finish(), {"best_epoch": history["best_epoch"], "epochs": request.epochs, "before": before, "after": after}


def _under_masks(
    model: Any, kernels: Sequence[Prunable], user: UserModule, schedule: Schedule, request: Request
) -> tuple[Any, list[Any], Callable[[], Any]]:
    """What learns, the callbacks that prune it in time, and what makes a plain model of it at the end."""
    masks = Masks(kernels, request.pattern)
    if not masks.kernels:
        return model, [], lambda: model
    if keras_models.is_keras_2(model):
        from tfopt.components.prune import toolkit

        wrapped = toolkit.wrap(model, kernels, request.pattern, schedule)
        compile_like(wrapped, user, request.learning_rate)
        return wrapped, [toolkit.callback()], lambda: toolkit.strip(wrapped)
    masks.guard(model.optimizer)

    def finish() -> Any:
        masks.apply()  # the best epoch's weights may have been put back
        return model

    return model, [masks.callback(model, schedule)], finish
