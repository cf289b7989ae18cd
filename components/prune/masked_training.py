"""Masks that hold through training: exact after every step of any optimizer, and in what the optimizer remembers.

The gradients of pruned weights are set to zero before the optimizer sees them, so that neither momentum nor clipping by
a norm knows them, and the weights are masked again after it, so that no optimizer can move them. Both happen inside the
training step's own graph, whether compiled by XLA or not: a multiplication for each kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt.components.prune import patterns as masks
from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.pattern import Pattern
from tfopt.components.prune.schedule import Schedule


class Masks:
    """The masks of a model's kernels."""

    def __init__(self, kernels: Sequence[Prunable], pattern: Pattern) -> None:
        """Mask nothing yet."""
        self.kernels = [kernel for kernel in kernels if not kernel.left]
        self.pattern = pattern
        self._masks = [tf.Variable(tf.ones(kernel.variable.shape), trainable=False) for kernel in self.kernels]

    def draw(self, sparsity: float) -> None:
        """Draw every mask anew from the weights as they are, and set to zero what it leaves out."""
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            mask.assign(masks.mask(kernel.values.astype(np.float32), self.pattern, sparsity, kernel.axis))
        self.apply()

    def apply(self) -> None:
        """Set to zero what the masks leave out."""
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            kernel.variable.assign(kernel.variable * tf.cast(mask, kernel.variable.dtype))

    def guard(self, optimizer: Any) -> None:
        """Make a Keras 3 optimizer leave pruned weights alone, from its next step on."""
        known = {id(kernel.variable): mask for kernel, mask in zip(self.kernels, self._masks, strict=True)}
        step = optimizer.apply

        def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
            variables = trainable_variables if trainable_variables is not None else optimizer._trainable_variables
            masked = [_masked(grad, known.get(id(variable))) for grad, variable in zip(grads, variables, strict=True)]
            result = step(masked, trainable_variables)
            self.apply()
            return result

        optimizer.apply = apply

    def forget(self, optimizer: Any) -> None:
        """Set to zero what the optimizer remembers of pruned weights: momentum, averages, gradients added up."""
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        places = {id(variable): place for place, variable in enumerate(inner._trainable_variables)}
        slots = [slot for slot in vars(inner).values() if isinstance(slot, list) and len(slot) == len(places)]
        for kernel, mask in zip(self.kernels, self._masks, strict=True):
            place = places.get(id(kernel.variable), -1)
            for slot in slots if place >= 0 else ():
                if hasattr(slot[place], "assign") and slot[place].shape == kernel.variable.shape:
                    slot[place].assign(slot[place] * tf.cast(mask, slot[place].dtype))

    def callback(self, model: Any, schedule: Schedule) -> Any:
        """Return what draws the masks anew in time, while the model fits."""
        import keras

        steps = iter(range(1, 2**62))

        def begin(batch: int, logs: object = None) -> None:
            step = next(steps)
            if schedule.due(step):
                self.draw(schedule.sparsity(step))
                self.forget(model.optimizer)

        return keras.callbacks.LambdaCallback(on_train_batch_begin=begin)


def _masked(gradient: Any, mask: Any) -> Any:
    if gradient is None or mask is None:
        return gradient
    dense = tf.convert_to_tensor(gradient)
    return dense * tf.cast(mask, dense.dtype)
