"""Pruning of Keras 2 models with TensorFlow's Model Optimization Toolkit."""

from collections.abc import Sequence
from typing import Any

from tensorflow_model_optimization.sparsity import keras as sparsity
from tf_keras import Model, Sequential, models

from tfopt.components.prune.kernels import PrunableKernel
from tfopt.components.prune.parameters import Pattern
from tfopt.components.prune.patterns import POWER, Schedule
from tfopt.errors import ComponentError


def wrap(model: Any, kernels: Sequence[PrunableKernel], pattern: Pattern, schedule: Schedule) -> Any:
    """Return the model with a pruning wrapper around each pruned layer. Both models share their weights.

    Raises:
        ComponentError: If it contains a subclassed model, whose layers cannot be replaced.
    """
    options = {"pruning_schedule": _toolkit_schedule(schedule)}
    if pattern.name == "n_m":
        n, m = pattern.ratio
        options["sparsity_m_by_n"] = (m - n, m)  # the toolkit counts zeros
    if pattern.name == "block":
        options["block_size"] = pattern.block

    def replace(layer: Any) -> Any:
        if isinstance(layer, Model):
            if not layer._is_graph_network and not isinstance(layer, Sequential):
                raise ComponentError(
                    f"model {layer.name}: a subclassed Keras 2 model",
                    "Sequential and Functional models, which TensorFlow's toolkit can prune",
                    "make it with the functional API or in Keras 3, or leave the module out to prune without training",
                )
            return models.clone_model(layer, clone_function=replace)
        inside = {id(part) for part in layer._flatten_layers()}
        pruned = [kernel.variable for kernel in kernels if id(kernel.layer) in inside and not kernel.left]
        if not pruned:
            return layer
        layer.get_prunable_weights = lambda: pruned
        wrapper = sparsity.prune_low_magnitude(layer, **options)
        wrapper._name = layer.name  # losses and metrics may be named by outputs
        return wrapper

    return replace(model)


def _toolkit_schedule(schedule: Schedule) -> Any:
    """Return the schedule as the toolkit's object, which counts steps from 1 too."""
    if schedule.end == 1:
        return sparsity.ConstantSparsity(schedule.goal, begin_step=1, end_step=1, frequency=1)
    return sparsity.PolynomialDecay(
        0.0, schedule.goal, begin_step=1, end_step=schedule.end, power=POWER, frequency=schedule.frequency
    )
