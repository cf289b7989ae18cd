"""Keras 2 models learn under their masks with TensorFlow's own pruning toolkit."""

from collections.abc import Sequence
from typing import Any

from tfopt.components.prune.kernels import Prunable
from tfopt.components.prune.pattern import Pattern
from tfopt.components.prune.schedule import Schedule
from tfopt.errors import ComponentError


def wrap(model: Any, kernels: Sequence[Prunable], pattern: Pattern, schedule: Schedule) -> Any:
    """Return the model with a pruning wrapper around each layer that is pruned. The two share their weights.

    Raises:
        ComponentError: When a model in it is a subclassed one, whose layers nobody can put others in place of.
    """
    import tf_keras
    from tensorflow_model_optimization.sparsity import keras as sparsity

    options = {"pruning_schedule": _toolkit_schedule(schedule)}
    if pattern.name == "n_m":
        n, m = pattern.ratio
        options["sparsity_m_by_n"] = (m - n, m)  # the toolkit counts zeros
    if pattern.name == "block":
        options["block_size"] = pattern.block

    def replace(layer: Any) -> Any:
        if isinstance(layer, tf_keras.Model):
            if not layer._is_graph_network and not isinstance(layer, tf_keras.Sequential):
                raise ComponentError(
                    f"model {layer.name}: a subclassed Keras 2 model",
                    "Sequential and Functional models, the only ones that TensorFlow's toolkit prunes",
                    "make it with the functional API or in Keras 3, or leave the module out to prune without training",
                )
            return tf_keras.models.clone_model(layer, clone_function=replace)
        inside = {id(part) for part in layer._flatten_layers()}
        pruned = [kernel.variable for kernel in kernels if id(kernel.layer) in inside and not kernel.left]
        if not pruned:
            return layer
        layer.get_prunable_weights = lambda: pruned
        wrapper = sparsity.prune_low_magnitude(layer, **options)
        wrapper._name = layer.name  # losses and metrics may be given by the names of the outputs
        return wrapper

    return replace(model)


def strip(model: Any) -> Any:
    """Return the model without its wrappers, the zeros in its weights."""
    from tensorflow_model_optimization.sparsity import keras as sparsity

    return sparsity.strip_pruning(model)


def callback() -> Any:
    """Return what tells the wrappers which step it is, and masks the weights after each epoch."""
    from tensorflow_model_optimization.sparsity import keras as sparsity

    return sparsity.UpdatePruningStep()


def _toolkit_schedule(schedule: Schedule) -> Any:
    """The same schedule in the toolkit's words; it counts steps from 1 as well."""
    from tensorflow_model_optimization.sparsity import keras as sparsity

    from tfopt.components.prune.schedule import POWER

    if schedule.end == 1:
        return sparsity.ConstantSparsity(schedule.goal, begin_step=1, end_step=1, frequency=1)
    return sparsity.PolynomialDecay(
        0.0, schedule.goal, begin_step=1, end_step=schedule.end, power=POWER, frequency=schedule.frequency
    )
