"""What is changed in a process of its own to see what a change of the user's code would give."""

from dataclasses import replace
from typing import Any

from tfopt.keras_models import io as keras_models
from tfopt.training.dataset import Reading, Source


def vectorize_maps() -> None:
    """Have ``tf.map_fn`` and Keras's map run all slices at once, for modules that are imported from now on."""
    import keras
    import tensorflow as tf

    def map_fn(fn: Any, elems: Any, *_: Any, **__: Any) -> Any:
        return tf.vectorized_map(fn, elems, fallback_to_while_loop=False)

    def keras_map(f: Any, xs: Any) -> Any:
        return tf.vectorized_map(f, xs, fallback_to_while_loop=False)

    tf.map_fn, keras.ops.map = map_fn, keras_map


def read_as(source: Source, reading: Reading) -> Source:
    """The same split, read so."""
    return replace(source, reading=reading)


def steps_per_execution(model: Any) -> int:
    """How many steps the module compiled into one call."""
    if keras_models.is_keras_2(model):
        return int(model._steps_per_execution.numpy())
    return int(model.steps_per_execution)


def set_steps_per_execution(model: Any, count: int) -> None:
    """Compile so many into one call from now on."""
    if keras_models.is_keras_2(model):
        model._configure_steps_per_execution(count)
    else:
        model.steps_per_execution = count
