"""The `stablehlo` runtime: a portable StableHLO artifact, which XLA compiles for the device of TensorFlow."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.runtimes.runtime import Arrays, Runtime
from tfopt.runtimes.saved_model import set_threads

CALL_VERSION = 9  # of TensorFlow's operation XlaCallModule: the first that compiles any StableHLO version


@dataclass(frozen=True)
class Tensor:
    """An input or output of a program."""

    name: str
    dtype: str  # a numpy dtype name or ``bfloat16``
    shape: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StableHLOSignature:
    """Names, dtypes and shapes of the function ``main``, whose own inputs and outputs have positions only."""

    schema_version: ClassVar[int] = 1
    stablehlo_version: str  # of the portable artifact
    inputs: list[Tensor]  # in the order of the arguments
    outputs: list[Tensor]  # in the order of the results


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Compile the program; a StableHLO file has a single signature, so the name is ignored."""
    assert model.stablehlo
    set_threads(threads)
    described = report_schema.load(StableHLOSignature, model.stablehlo.with_suffix(".json"))
    try:
        runtime = StableHLORuntime(model.stablehlo.read_bytes(), described)
        runtime.call_on_zeros()
    except Exception as error:
        fix = "convert it again; one of the two files may be truncated, or from another export"
        received = f"{model.stablehlo}: {first_line(error)[:300]}"
        raise ComponentError(received, "a portable StableHLO artifact with its model.json", fix) from error
    return runtime


def run_once(content: bytes, signature: StableHLOSignature) -> dict[str, NDArray[Any]]:
    """Return the outputs of a program on zeros; the shapes of the outputs in the signature may be missing."""
    return StableHLORuntime(content, signature, any_shape=True).call_on_zeros()


class StableHLORuntime(Runtime):
    """A StableHLO program."""

    def __init__(self, content: bytes, signature: StableHLOSignature, *, any_shape: bool = False) -> None:
        """Wrap a portable artifact, which is compiled at its first call."""
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.python import xla

        ends = signature.inputs, signature.outputs
        self.inputs, self.outputs = (
            {tensor.name: TensorSpec(tensor.dtype, tuple(tensor.shape)) for tensor in end} for end in ends
        )

        def main(*arguments: Any) -> Any:
            return xla.call_module(
                arguments,
                version=CALL_VERSION,
                module=content,
                Tout=[tf.as_dtype(spec.dtype) for spec in self.outputs.values()],
                Sout=[tf.TensorShape(None if any_shape else spec.shape) for spec in self.outputs.values()],
                platforms=["CPU"],
                disabled_checks=[xla.call_module_disable_check_platform()],  # the program is the same on all
            )

        specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in self.inputs.values()]
        self._call, self._constant = tf.function(main, input_signature=specs, autograph=False), tf.constant

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the program."""
        results = self._call(*(self._constant(arrays[name]) for name in self.inputs))
        return {name: np.asarray(result.numpy()) for name, result in zip(self.outputs, results, strict=True)}

    def call_on_zeros(self) -> dict[str, NDArray[Any]]:
        """Compile the program and run it on zeros."""
        import tensorflow as tf

        zeros = {}
        for name, spec in self.inputs.items():
            zeros[name] = np.zeros([size or 0 for size in spec.shape], tf.as_dtype(spec.dtype).as_numpy_dtype)
        return self.call(zeros)
