"""Pruning of Keras 2 models with TensorFlow's Model Optimization Toolkit."""

from collections.abc import Sequence
from typing import Any

from tensorflow_model_optimization.sparsity import keras as sparsity

from tfopt.components.prune.kernels import PrunableKernel
from tfopt.components.prune.parameters import Pattern
from tfopt.components.prune.patterns import POWER, Schedule
from tfopt.training.weight_changes import wrap_layers


def wrap(model: Any, kernels: Sequence[PrunableKernel], pattern: Pattern, schedule: Schedule) -> Any:
    """Return the model with a pruning wrapper around each pruned layer; see `wrap_layers`."""
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
    if schedule.end == 1:
        return sparsity.ConstantSparsity(schedule.goal, begin_step=1, end_step=1, frequency=1)
    return sparsity.PolynomialDecay(
        0.0, schedule.goal, begin_step=1, end_step=schedule.end, power=POWER, frequency=schedule.frequency
    )
