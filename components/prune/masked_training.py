"""Fine-tuning of a pruned model whose zeros stay exact after every step of any optimizer.

In Keras 3, gradients of pruned weights are set to zero before the optimizer sees them, so that they influence neither
momentum nor clipping by norm. After the step, the weights are masked again, so that weight decay cannot change them.
Both happen inside the graph of the training step, with or without XLA, and cost one multiplication per kernel. Keras 2
models are trained with the wrappers of TensorFlow's Model Optimization Toolkit.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt import keras_models
from tfopt.components.prune.kernels import input_axis
from tfopt.components.prune.parameters import Pattern, Settings
from tfopt.components.prune.patterns import POWER, Schedule, draw_mask, plan_schedule
from tfopt.keras_models.kernels import Kernel
from tfopt.training.fine_tuner import SECOND_ROUND, FineTuner
from tfopt.training.fit_loop import History
from tfopt.training.weight_changes import wrap_layers
from tfopt.value_types import JsonObject

GRADUAL = ("magnitude", "block")  # patterns whose sparsity can grow; that of N:M is fixed

log = logging.getLogger(__name__)


class Masks:
    """The masks of a model's kernels."""

    def __init__(self, kernels: Sequence[Kernel], pattern: Pattern) -> None:
        """Create masks of ones."""
        self.kernels = [kernel for kernel in kernels if not kernel.left]
        self.pattern = pattern
        self._masks = [tf.Variable(tf.ones(kernel.variable.shape), trainable=False) for kernel in self.kernels]

    def update(self, sparsity: float) -> None:
        """Compute every mask from the current weights, and apply it."""
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            mask.assign(draw_mask(kernel.values.astype(np.float32), self.pattern, sparsity, input_axis(kernel)))
        self.apply()

    def apply(self) -> None:
        """Set the masked weights to zero."""
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            kernel.variable.assign(kernel.variable * tf.cast(mask, kernel.variable.dtype))

    def attach(self, optimizer: Any) -> None:
        """Make a Keras 3 optimizer mask gradients and weights in each step."""
        masks = {id(kernel.variable): mask for kernel, mask in zip(self.kernels, self._masks, strict=True)}
        step = optimizer.apply

        def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
            variables = trainable_variables if trainable_variables is not None else optimizer._trainable_variables
            masked = [_masked(grad, masks.get(id(variable))) for grad, variable in zip(grads, variables, strict=True)]
            result = step(masked, trainable_variables)
            self.apply()
            return result

        optimizer.apply = apply

    def mask_optimizer_state(self, optimizer: Any) -> None:
        """Set the optimizer's state of pruned weights to zero: momentum, averages, accumulated gradients."""
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        positions = {id(variable): position for position, variable in enumerate(inner._trainable_variables)}
        slots = [slot for slot in vars(inner).values() if isinstance(slot, list) and len(slot) == len(positions)]
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            position = positions.get(id(kernel.variable), -1)
            for slot in slots if position >= 0 else ():
                if hasattr(slot[position], "assign") and slot[position].shape == kernel.variable.shape:
                    slot[position].assign(slot[position] * tf.cast(mask, slot[position].dtype))

    def callback(self, model: Any, schedule: Schedule) -> Any:
        """Return a Keras 3 callback that updates the masks by the schedule."""
        import keras

        steps = iter(range(1, 2**62))

        def begin(batch: int, logs: object = None) -> None:
            step = next(steps)
            if schedule.is_due(step):
                self.update(schedule.sparsity(step))
                self.mask_optimizer_state(model.optimizer)

        return keras.callbacks.LambdaCallback(on_train_batch_begin=begin)


def fine_tune(model: Any, kernels: Sequence[Kernel], tuner: FineTuner, settings: Settings) -> tuple[Any, JsonObject]:
    """Return the model without wrappers, with its best weights at the final sparsity, and facts for its model card.

    The model is compiled, and its weights change. Without kernels it is trained without masks. A second round uses the
    same zeros.
    """
    before = tuner.evaluate(model)
    steps = -(-tuner.sources["train"].count // settings.batch_size)
    kind = settings.schedule if settings.pattern in GRADUAL else "constant"
    schedule = plan_schedule(kind, settings.sparsity, steps=steps * settings.epochs)

    def fit(model: Any, schedule: Schedule, folder: Path, epochs: int, seed: int) -> tuple[Any, History]:
        trainee, callbacks, finish = _add_masks(model, kernels, tuner, schedule, settings)
        start = (schedule.end - 1) // steps
        history = tuner.fit(trainee, folder, epochs, seed, start_from_epoch=start, first_callbacks=callbacks)
        plain = finish()
        return plain if plain is model else tuner.compile(plain), history

    def fit_again(model: Any) -> tuple[Any, History]:
        # the smallest weights are those that are zero, so that the masks do not change
        same_zeros = plan_schedule("constant", settings.sparsity, steps=1)
        folder = tuner.folder / SECOND_ROUND
        return fit(tuner.compile(model), same_zeros, folder, settings.recover, settings.seed + 1)

    model, first = fit(model, schedule, tuner.folder, settings.epochs, settings.seed)
    model, second, recovery = tuner.second.run(model, fit_again)
    history = second or first
    best = history["epochs"][history["best_epoch"] - 1]
    after = {name: best[name] for name in before if best.get(name) is not None}
    log.info("%s", ", ".join(f"{name} {before[name]:.4g} -> {after[name]:.4g}" for name in sorted(after)))
    facts: JsonObject = {"best_epoch": history["best_epoch"], "epochs": settings.recover if second else settings.epochs}
    return model, {**facts, "before": before, "after": after, **({"recovery": recovery} if recovery else {})}


def _add_masks(
    model: Any, kernels: Sequence[Kernel], tuner: FineTuner, schedule: Schedule, settings: Settings
) -> tuple[Any, list[Any], Callable[[], Any]]:
    """Return the model to train, the callbacks that prune it, and a function that returns it without wrappers."""
    masks = Masks(kernels, settings.parsed_pattern)
    if not masks.kernels:
        return model, [], lambda: model
    if keras_models.is_keras_2(model):
        from tensorflow_model_optimization.sparsity import keras as sparsity  # imports Keras 2

        wrapped = tuner.compile(wrap_kernels(model, kernels, settings.parsed_pattern, schedule))
        # The callback passes the step to the wrappers, and masks the weights after each epoch.
        return wrapped, [sparsity.UpdatePruningStep()], lambda: sparsity.strip_pruning(wrapped)
    masks.attach(model.optimizer)

    def finish() -> Any:
        masks.apply()  # since the weights of the best epoch may have been restored
        return model

    return model, [masks.callback(model, schedule)], finish


def _masked(gradient: Any, mask: Any) -> Any:
    if gradient is None or mask is None:
        return gradient
    dense = tf.convert_to_tensor(gradient)
    return dense * tf.cast(mask, dense.dtype)


def wrap_kernels(model: Any, kernels: Sequence[Kernel], pattern: Pattern, schedule: Schedule) -> Any:
    """Return a Keras 2 model with the toolkit's pruning wrapper around each pruned layer; see `wrap_layers`."""
    from tensorflow_model_optimization.sparsity import keras as sparsity

    options = {"pruning_schedule": _toolkit_schedule(schedule)}
    if pattern.name == "n_m":
        n, m = pattern.ratio
        options["sparsity_m_by_n"] = (m - n, m)  # the toolkit counts zeros
    if pattern.name == "block":
        options["block_size"] = pattern.block

    def wrap_layer(layer: Any) -> Any:
        inside = {id(part) for part in layer._flatten_layers()}
        pruned = [kernel.variable for kernel in kernels if id(kernel.layer) in inside and not kernel.left]
        if not pruned:
            return layer
        layer.get_prunable_weights = lambda: pruned
        return sparsity.prune_low_magnitude(layer, **options)

    return wrap_layers(model, wrap_layer, verb="prune", untrained="prune without training")


def _toolkit_schedule(schedule: Schedule) -> Any:
    """Return the schedule as the toolkit's object, which counts steps from 1 too."""
    from tensorflow_model_optimization.sparsity import keras as sparsity

    if schedule.end == 1:
        return sparsity.ConstantSparsity(schedule.goal, begin_step=1, end_step=1, frequency=1)
    return sparsity.PolynomialDecay(
        0.0, schedule.goal, begin_step=1, end_step=schedule.end, power=POWER, frequency=schedule.frequency
    )
