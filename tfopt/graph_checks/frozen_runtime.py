"""Run a frozen model in memory, to compare it with its parent before it is written."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec, plain_integers
from tfopt.data.text_inputs import describe_text_inputs
from tfopt.graph.const_arrays import feed_weights
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.session import session
from tfopt.processes.call_limit import call_within, limit_seconds
from tfopt.runtimes import Arrays, Runtime
from tfopt.value_types import Tensors


class FrozenRuntime(Runtime):
    """A runtime for one signature of a frozen model, with the graph optimizers of TensorFlow off.

    Attributes:
        frozen: The model.
    """

    def __init__(self, frozen: Frozen, key: str) -> None:
        """Import the graph into a session and run the initializer."""
        signature = frozen.signatures[key]
        self.frozen, self.size = frozen, frozen.graph.ByteSize()
        specs = {name: _spec(end.dtype, end.shape) for name, end in signature.inputs.items()}
        tensors = {name: end.tensor for name, end in signature.inputs.items()}
        self.inputs = describe_text_inputs(specs, frozen.graph, tensors, frozen.assets.values())
        self.outputs = {name: _spec(end.dtype, end.shape) for name, end in sorted(signature.outputs.items())}
        self._fed = tensors
        self._fetched = {name: signature.outputs[name].tensor for name in self.outputs}
        graph, self._weights = feed_weights(frozen.graph)
        self._session = session(graph)
        if frozen.initializer:
            files = {tensor: str(file) for tensor, file in frozen.assets.items()}
            initialize = functools.partial(self._session.run, frozen.initializer, {**self._weights, **files})
            call_within(limit_seconds(self.size), initialize, "the initialization", self.stop)

    def call(self, arrays: Arrays, *, timeout_s: float = 0) -> dict[str, NDArray[Any]]:
        """Return the outputs of the signature by name; 0 is no timeout."""
        import tensorflow as tf

        feeds = {**self._weights, **{self._fed[name]: arrays[name] for name in self.inputs}}
        options = tf.compat.v1.RunOptions(timeout_in_ms=int(1000 * timeout_s))
        values: Tensors = self._session.run(self._fetched, feeds, options=options)
        return {name: plain_integers(np.asarray(value)) for name, value in values.items()}

    def evaluate(
        self, arrays: Arrays, replaced: Tensors, tensors: Mapping[str, str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return outputs, or ``tensors`` (``name:0``) by name, with other values for the ``replaced`` tensors."""
        feeds = {**self._weights, **{self._fed[name]: arrays[name] for name in self.inputs}, **replaced}
        values: dict[str, NDArray[Any]] = self._session.run(dict(tensors or self._fetched), feeds)
        return values

    def close(self) -> None:
        """Close the session, which cancels a call."""
        self._session.close()

    stop = close


def _spec(dtype: str, shape: tuple[int | None, ...] | None) -> TensorSpec:
    return TensorSpec(dtype, (None,), ranked=False) if shape is None else TensorSpec(dtype, shape)
