"""Change settings of the user's model and code in this process, to measure the effect of a change in the module."""

from typing import Any

from tfopt import keras_models


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
