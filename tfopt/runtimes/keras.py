"""The `keras` runtime: a Keras 3 or Keras 2 model in inference mode."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.runtimes.runtime import Arrays, Runtime
from tfopt.runtimes.saved_model import set_threads, to_tensor_spec


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load the Keras model; it has a single signature, so the name is ignored."""
    return KerasRuntime(model, threads)


def input_specs(model: keras_models.KerasObject) -> dict[str, TensorSpec]:
    """Return the inputs of the function that serves a Keras model."""
    return {name: to_tensor_spec(spec) for name, spec in keras_models.serving_function(model)[1].items()}


class KerasRuntime(Runtime):
    """A Keras model with its layers in inference mode."""

    def __init__(self, model: Model, threads: int | None) -> None:
        """Load the model; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        serve, signature = keras_models.serving_function(keras_models.load(model))
        self._call = serve
        self.inputs = {name: to_tensor_spec(spec) for name, spec in signature.items()}
        results = serve.get_concrete_function(signature).structured_outputs  # type: ignore[attr-defined]
        self.outputs = {name: to_tensor_spec(spec) for name, spec in sorted(results.items())}
        self._constant = tf.constant

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model."""
        results = self._call({name: self._constant(arrays[name]) for name in self.inputs})
        return {name: np.asarray(results[name].numpy()) for name in self.outputs}
