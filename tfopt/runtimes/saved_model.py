"""The `saved_model` runtime: TensorFlow's own executor on one signature."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.runtimes import Arrays, Runtime


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a signature of a SavedModel."""
    return SavedModelRuntime(model, signature, threads)


class SavedModelRuntime(Runtime):
    """A signature of a SavedModel, called by input name."""

    def __init__(self, model: Model, signature: str, threads: int | None) -> None:
        """Load it; see `tfopt.runtimes.load`."""
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
        known = self._loaded.signatures
        if signature not in known:
            raise ComponentError(
                f"{model.uri}: no signature {signature!r}",
                "one of its signatures",
                nearest(signature, known) if known else "export it with a signature",
            )
        self._call = known[signature]
        # TensorFlow knows no order of either: that of the inputs is another one in each process.
        inputs = self._call.structured_input_signature[1]
        self.inputs = {name: spec_of(spec) for name, spec in sorted(inputs.items())}
        self.outputs = {name: spec_of(spec) for name, spec in sorted(self._call.structured_outputs.items())}
        self._constant = tf.constant

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the signature."""
        results = self._call(**{name: self._constant(arrays[name]) for name in self.inputs})
        return {name: np.asarray(results[name].numpy()) for name in self.outputs}


def spec_of(spec: Any) -> TensorSpec:
    """A ``tf.TensorSpec`` in tfopt's words."""
    if spec.shape.rank is None:
        return TensorSpec(spec.dtype.name, (None,), ranked=False)
    return TensorSpec(spec.dtype.name, tuple(spec.shape))


def set_threads(threads: int | None) -> None:
    """Give TensorFlow its thread count; it fixes its pools at first use, so this must come first in the process.

    Raises:
        ComponentError: When TensorFlow already runs with another count.
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
