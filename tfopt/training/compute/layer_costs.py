"""Measure the time and the memory that each layer of a model needs in a training step."""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from tfopt import keras_models
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.training.compute.layer_cut import LayerCost
from tfopt.training.compute.model_parallel import Placement, placeable_layers, replaced, tensorflow_variables

TIMED_RUNS = 5  # of each layer, after the one that traces it


def measure_layers(model: Any, placement: Placement, inputs: Any) -> tuple[list[LayerCost], list[int]]:
    """Run a compiled model on one batch, and each layer forward and backward on what it receives there.

    Return the cost of each layer, and for a cut before each layer the bytes that a pass copies. The state of the model
    changes.

    Raises:
        ComponentError: If a layer raises.
    """
    layers = placeable_layers(model)
    measurement = _Measurement(len(layers), autograph=keras_models.is_keras_2(model))
    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            device = placement.devices[placement.numbers[number]]
            call = functools.partial(measurement.call, number, layer, layer.call, device)
            stack.enter_context(replaced(layer, "call", call))
        try:
            model(inputs, training=True)
        except Exception as error:
            at, reason = layers[measurement.last].name, measurement.failure or first_line(error)
            received = f"model_parallel: the layers cannot be measured one by one, at {at}: {reason}"
            fix = "leave model_parallel out, or pass a smaller batch_size if memory ran out"
            raise ComponentError(received, "layers that run on a batch of the examples", fix) from error
    factor = 2 + _optimizer_variables(model)
    costs = []
    for number, layer in enumerate(layers):
        weights, trained = weight_bytes(layer), _bytes(getattr(layer, "trainable_variables", ()))
        step_bytes = weights + round((factor - 1) * trained) + measurement.output_bytes[number]
        costs.append(LayerCost(layer.name, measurement.seconds[number], weights, step_bytes))
    return costs, measurement.copied


def weight_bytes(layer: Any) -> int:
    """Return the size of a layer's variables."""
    return _bytes(getattr(layer, "variables", ()))


class _Measurement:
    """The measurements of all layers in one run of the model."""

    def __init__(self, count: int, *, autograph: bool) -> None:
        self.seconds, self.output_bytes, self.copied = [0.0] * count, [0] * count, [0] * count
        self.last, self.failure = 0, ""  # the number of the layer that was called last, and why it failed
        self._autograph = autograph
        self._producers: dict[int, tuple[int, Any]] = {}  # by identity: the number of a tensor's layer, and the tensor
        self._overhead = _median_time(tf.function(lambda: tf.zeros(())))

    def call(
        self, number: int, layer: Any, call: Callable[..., Any], device: str, *arguments: Any, **options: Any
    ) -> Any:
        """Measure a call of a layer, and return its outputs."""
        self.last = number
        used = [each for each in tf.nest.flatten((arguments, options)) if isinstance(each, tf.Tensor)]
        for tensor in used:
            producer = self._producers.get(id(tensor), (number, None))[0]
            for cut in range(min(producer, number) + 1, max(producer, number) + 1):
                self.copied[cut] += _size(tensor)
        try:
            with tf.device(device):
                step = tf.function(_gradient_step(layer, call, used, arguments, options), autograph=self._autograph)
                self.seconds[number] += max(0.0, _median_time(step) - self._overhead)
                outputs = call(*arguments, **options)
        except Exception as error:
            self.failure = first_line(error)  # the error that Keras raises from it begins with the name of a method
            raise
        for tensor in tf.nest.flatten(outputs):
            if isinstance(tensor, tf.Tensor):
                self._producers[id(tensor)] = number, tensor  # the tensor lives on, so that no other gets its identity
                self.output_bytes[number] += _size(tensor)
        return outputs


def _gradient_step(
    layer: Any, call: Callable[..., Any], used: Sequence[Any], arguments: Any, options: Any
) -> Callable[[], Any]:
    sources = [each for each in used if each.dtype.is_floating]

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = [each for each in tf.nest.flatten(call(*arguments, **options)) if isinstance(each, tf.Tensor)]
            floats = [tf.reduce_sum(tf.cast(each, tf.float32)) for each in outputs if each.dtype.is_floating]
        weights = tensorflow_variables(getattr(layer, "trainable_variables", ()))
        gradients = tape.gradient(floats, [*sources, *weights]) if floats and sources else []
        return [tf.convert_to_tensor(each) for each in [*outputs, *gradients] if each is not None]

    return step


def _median_time(step: Callable[[], Any]) -> float:
    """Return the median time of some calls of a function, after one that traces it."""
    seconds = []
    for _ in range(1 + TIMED_RUNS):
        start = time.perf_counter()
        step()
        tf.test.experimental.sync_devices()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def _optimizer_variables(model: Any) -> float:
    """Return the bytes of an optimizer's variables for each byte of a trained weight, from a copy of the optimizer."""
    optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    create = getattr(optimizer, "build", None) or optimizer._create_all_weights  # legacy optimizers of Keras 2
    create(model.trainable_variables)
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return _bytes(variables) / max(1, _bytes(model.trainable_variables))


def _bytes(variables: Sequence[Any]) -> int:
    return sum(map(_size, tensorflow_variables(variables)))


def _size(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)
