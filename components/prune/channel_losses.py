"""The loss of single examples, for the importance by first-order Taylor expansion."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tfopt import keras_models
from tfopt.data.batches import Batch
from tfopt.keras_models.layer_graph import Layer
from tfopt.training.dataset import Source


def compiled_losses(model: Layer, source: Source, *, count: int, seed: int) -> Iterator[Callable[[], Any]]:
    """Yield the loss that a compiled model trains with, regularization included, one function for each example."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def loss(inputs: Any, targets: Any) -> Any:
        return model.compute_loss(x=inputs, y=targets, y_pred=model(inputs, training=False))

    for inputs, targets in source.shuffled(1, seed).take(count):
        yield partial(loss, inputs, targets)


def own_losses(model: Layer, batch: Batch) -> Iterator[Callable[[], Any]]:
    """Yield how sure a model is of its own answers, one function for each example; no labels are needed.

    Of probabilities (several values from 0 to 1 that sum to 1) it is the cross-entropy with the likeliest class, of
    anything else half the squared norm, whose gradient is the answer itself.
    """
    import tensorflow as tf

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def loss(inputs: Mapping[str, Any]) -> Any:
        results = tf.nest.flatten(model(keras_models.pack_inputs(model, inputs), training=False))
        return tf.add_n([_sureness(tf.cast(result, tf.float32)) for result in results])

    for place in range(len(next(iter(batch.values())))):
        yield partial(loss, {name: tf.constant(array[place : place + 1]) for name, array in batch.items()})


def _sureness(result: Any) -> Any:
    import tensorflow as tf

    energy = tf.reduce_sum(tf.square(result)) / 2
    if result.shape.rank != 2 or result.shape[1] == 1:
        return energy
    summed = tf.abs(tf.reduce_sum(result) - 1) < 1e-3
    probable = tf.reduce_all(result >= 0) & summed
    return tf.where(probable, -tf.math.log(tf.maximum(tf.reduce_max(result), 1e-7)), energy)
