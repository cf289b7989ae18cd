"""The `keras` runtime: a Keras 3 or Keras 2 model from its file, called without training."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Model
from tfopt.runtimes import Arrays, Runtime, TensorSpec


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load the Keras form; it has one signature, whatever that is called."""
    return KerasRuntime(model)


class KerasRuntime(Runtime):
    """A Keras model, called by input name, with its layers in inference mode."""

    def __init__(self, model: Model) -> None:
        """Load it; see `tfopt.runtimes.load`."""
        loaded = keras_models.load(model)
        call, signature = keras_models.serving_function(loaded)
        self._call: Any = call
        self.inputs = {name: TensorSpec(spec.dtype.name, tuple(spec.shape)) for name, spec in signature.items()}
        concrete = self._call.get_concrete_function(signature)
        self.outputs = {
            name: TensorSpec(spec.dtype.name, tuple(spec.shape)) for name, spec in concrete.structured_outputs.items()
        }

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the model."""
        results = self._call({name: arrays[name] for name in self.inputs})
        return {name: np.asarray(results[name].numpy()) for name in self.outputs}
