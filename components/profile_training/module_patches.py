"""Change settings of the user's model and code in this process, to measure the effect of a change in the module."""

import math
from typing import Any

from tfopt import keras_models
from tfopt.components.profile_training.trace_events import Scopes


def vectorize_maps() -> None:
    """Replace ``tf.map_fn`` and ``keras.ops.map`` by vectorized forms, for modules that are imported later."""
    import keras
    import tensorflow as tf

    def map_fn(fn: Any, elems: Any, *_: Any, **__: Any) -> Any:
        return tf.vectorized_map(fn, elems, fallback_to_while_loop=False)

    def keras_map(f: Any, xs: Any) -> Any:
        return tf.vectorized_map(f, xs, fallback_to_while_loop=False)

    tf.map_fn, keras.ops.map = map_fn, keras_map


def steps_per_execution(model: Any) -> int:
    """Return the number of steps per call of a compiled model."""
    if keras_models.is_keras_2(model):
        return int(model._steps_per_execution.numpy())
    return int(model.steps_per_execution)


def set_steps_per_execution(model: Any, count: int) -> None:
    """Set the number of steps per call of a compiled model."""
    if keras_models.is_keras_2(model):
        model._configure_steps_per_execution(count)
    else:
        model.steps_per_execution = count


def scopes(model: Any) -> Scopes:
    """Return the names that the operations of a training step have in front of their own."""
    layers = model._flatten_layers(recursive=True, include_self=False)
    optimizers = [model.optimizer, getattr(model.optimizer, "inner_optimizer", None)]
    return Scopes(
        model.name,
        {layer.name for layer in layers if not hasattr(layer, "layers")},
        {optimizer.name for optimizer in optimizers if optimizer is not None},
    )


def weight_counts(model: Any) -> dict[str, int]:
    """Return the number of trained weights, by layer that has some, the largest first."""
    counts: dict[str, int] = {}
    for layer in model._flatten_layers(recursive=True, include_self=False):
        if not hasattr(layer, "layers"):
            counts[layer.name] = sum(math.prod(variable.shape) for variable in layer.trainable_variables)
    return {name: count for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count}


def use_sparse_optimizer(model: Any) -> None:
    """Replace the optimizer by SGD, which changes only the rows of an embedding that a batch contains."""
    import keras
    import tf_keras

    optimizers = (tf_keras if keras_models.is_keras_2(model) else keras).optimizers
    model.optimizer = optimizers.SGD(1e-3)
