"""The `saved_model` runtime: a signature of a SavedModel in TensorFlow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec, plain_integers
from tfopt.data.text_inputs import read_text_inputs
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.runtimes import Arrays, Runtime


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a signature of a SavedModel."""
    return SavedModelRuntime(model, signature, threads)


class SavedModelRuntime(Runtime):
    """A signature of a SavedModel."""

    def __init__(self, model: Model, signature: str, threads: int | None) -> None:
        """Load the model; see `tfopt.runtimes.load`."""
        import tensorflow as tf

        set_threads(threads)
        try:
            self._loaded = tf.saved_model.load(str(model.saved_model))
        except Exception as error:
            raise ComponentError(
                f"{model.saved_model}: {first_line(error)}",
                "a SavedModel that TensorFlow can load",
                "export it again; a file may be truncated or missing",
            ) from error
        signatures = self._loaded.signatures
        if signature not in signatures:
            raise ComponentError(
                f"{model.uri}: no signature {signature!r}",
                "one of its signatures",
                nearest(signature, signatures) if signatures else "export it with a signature",
            )
        self._call = signatures[signature]
        # TensorFlow stores no order; the order of the inputs differs between processes.
        inputs = self._call.structured_input_signature[1]
        self.inputs = {name: to_tensor_spec(spec) for name, spec in sorted(inputs.items())}
        if model.saved_model and any(spec.dtype == "string" for spec in self.inputs.values()):
            self.inputs |= read_text_inputs(model.saved_model, signature)
        self.outputs = {name: to_tensor_spec(spec) for name, spec in sorted(self._call.structured_outputs.items())}
        self._constant = tf.constant

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the signature."""
        results = self._call(**{name: self._constant(arrays[name]) for name in self.inputs})
        return {name: plain_integers(np.asarray(results[name].numpy())) for name in self.outputs}


def to_tensor_spec(spec: Any) -> TensorSpec:
    """Convert a ``tf.TensorSpec``."""
    if spec.shape.rank is None:
        return TensorSpec(spec.dtype.name, (None,), ranked=False)
    return TensorSpec(spec.dtype.name, tuple(spec.shape))


def set_threads(threads: int | None) -> None:
    """Set TensorFlow's thread count, which must happen before its first use in the process.

    Raises:
        ComponentError: If TensorFlow already runs with another count.
    """
    if not threads:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:
        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            raise ComponentError(
                f"threads={threads}",
                "a process in which TensorFlow has not run yet",
                "load the model with this thread count first, in a fresh process",
            ) from error
