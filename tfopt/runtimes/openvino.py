"""The `openvino` runtime: OpenVINO on the CPU."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.runtime import Arrays, Runtime

# Minimal latency of single calls. Without the precision hint, float32 models run in bfloat16 on CPUs that support it.
SETTINGS = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
WIDE = ("int64", "uint64", "uint32")  # the CPU plugin computes them as int32 and truncates without an error
LIMITS = np.iinfo(np.int32)


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Compile the graph for the CPU; an OpenVINO model has a single signature, so the name is ignored."""
    try:
        return OpenVINORuntime(compile_model(str(model.openvino), threads), str(model.openvino))
    except RuntimeError as error:
        raise _refusal(model, error) from error


def compile_model(model: Any, threads: int | None = None) -> Any:
    """Return the ``openvino.CompiledModel`` of an ``openvino.Model`` or its file, with the settings of this runtime."""
    from tfopt.runtimes.openvino_import import openvino  # imports OpenVINO

    settings = SETTINGS | ({"INFERENCE_NUM_THREADS": threads, "ENABLE_HYPER_THREADING": True} if threads else {})
    return openvino.Core().compile_model(model, "CPU", settings)


class OpenVINORuntime(Runtime):
    """An OpenVINO model.

    Floating-point values are computed in float32 on every CPU: float16 only reduces the file size.
    """

    def __init__(self, compile_model: Any, where: str) -> None:
        """Wrap an ``openvino.CompiledModel``; ``where`` is its origin for errors."""
        self._compiled = compile_model
        self.inputs = {_name(port): _spec(port) for port in self._compiled.inputs}
        self.outputs = {_name(port): _spec(port) for port in self._compiled.outputs}
        for name, spec in (self.inputs | self.outputs).items():
            if spec.dtype == "string":
                fix = "look words up before the model, or use its SavedModel or ONNX form"
                raise ComponentError(f"{where}: {name!r} is text", "numbers, as OpenVINO has no kernels for text", fix)
        self._input_names = list(self.inputs)
        self._wide = [name for name, spec in self.inputs.items() if spec.dtype in WIDE]
        self._request = self._compiled.create_infer_request()

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the graph."""
        for name in self._wide:
            low, high = arrays[name].min(initial=0), arrays[name].max(initial=0)
            if high > LIMITS.max or low < LIMITS.min:
                received = f"input {name!r}: integers from {arrays[name].min()} to {arrays[name].max()}"
                expected = f"at most 32 bits ({LIMITS.min} to {LIMITS.max}): OpenVINO on CPUs would truncate them"
                fix = "hash or look them up to smaller numbers, or use the model's SavedModel or ONNX form"
                raise ComponentError(received, expected, fix)
        results = self._request.infer([arrays[name] for name in self._input_names], share_inputs=True)
        return dict(zip(self.outputs, results.to_tuple(), strict=True))

    def close(self) -> None:
        """Release the compiled graph and its memory."""
        del self._request, self._compiled


def _name(port: Any) -> str:
    """Return the name of a port; for several names, as if an input is also an output, that of its node."""
    own: str = port.node.get_friendly_name()
    return own if own in port.names else min(port.names, default=own)


def _spec(port: Any) -> TensorSpec:
    kind, shape = port.element_type, port.partial_shape
    dtype = "string" if kind.get_type_name() == "string" else np.dtype(kind.to_dtype()).name
    if shape.rank.is_dynamic:
        return TensorSpec(dtype, (None,), ranked=False)
    return TensorSpec(dtype, tuple(size.get_length() if size.is_static else None for size in shape))


def _refusal(model: Model, error: Exception) -> ComponentError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    received = f"{model.openvino}: {lines[-1] if lines else first_line(error)}"
    fix = "convert it again; one of the two files may be truncated, or from another export"
    return ComponentError(received, "a model.xml that OpenVINO can load, with its model.bin", fix)
