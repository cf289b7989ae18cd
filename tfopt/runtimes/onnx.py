"""The `onnx` runtime: ONNX Runtime on the CPU."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.runtime import Arrays, Runtime

# ONNX Runtime's names of dtypes that numpy names differently.
DTYPES = {"float": "float32", "double": "float64"}


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load the graph; an ONNX file has a single signature, so the name is ignored."""
    return OnnxRuntime(model, threads)


class OnnxRuntime(Runtime):
    """An ONNX model.

    Text is UTF-8 in ONNX; inputs may be bytes or text, and outputs are bytes, as in TensorFlow.
    """

    def __init__(self, model: Model, threads: int | None = None, *, unfused: bool = False) -> None:
        """Load the model; see `tfopt.runtimes.load`.

        ``unfused`` computes quantized operations in float32, between the nodes that quantize and dequantize. The 8-bit
        kernels overflow on CPUs without VNNI, where they add two products in 16 bits.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if unfused:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 4  # errors are also raised as exceptions
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = threads or 0
        try:
            self._session = onnxruntime.InferenceSession(str(model.onnx), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common base class
            raise _refusal(model, error) from error
        self._options = onnxruntime.RunOptions()
        self.inputs = {value.name: _spec(value) for value in self._session.get_inputs()}
        self.outputs = {value.name: _spec(value) for value in self._session.get_outputs()}
        self._names = list(self.outputs)
        self._text = [name for specs in (self.inputs, self.outputs) for name in specs if specs[name].dtype == "string"]

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the graph."""
        if self._text:
            arrays = {name: decode_text(name, array) if name in self._text else array for name, array in arrays.items()}
        results = dict(zip(self._names, self._session.run(self._names, arrays, self._options), strict=True))
        return {name: _as_bytes(array) if name in self._text else array for name, array in results.items()}

    def stop(self) -> None:
        """Stop a call; the process could not end otherwise."""
        self._options.terminate = True

    def close(self) -> None:
        """Release the session's memory and threads."""
        del self._session


def _refusal(model: Model, error: Exception) -> ComponentError:
    message = first_line(error)
    unknown = re.search(
        r"No Op registered for (\S+)|(\S+)\(-?\d+\) is not a registered function/op|implementation for (\w+)", message
    )
    if unknown:
        name = next(filter(None, unknown.groups()))
        received = f"{model.onnx}: op {name}, which ONNX Runtime does not have"
        fix = "convert it again with another opset, or express the op with others in the model"
        return ComponentError(received, "a graph of ops that it has", fix)
    fix = "convert it again; it may be truncated, or a file with its weights may be missing"
    return ComponentError(f"{model.onnx}: {message}", "a file that ONNX Runtime can load", fix)


def _spec(value: Any) -> TensorSpec:
    match = re.search(r"tensor\((\w+)\)", value.type)
    dtype = match[1] if match else value.type
    return TensorSpec(DTYPES.get(dtype, dtype), tuple(size if isinstance(size, int) else None for size in value.shape))


def decode_text(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Decode the bytes of an input: ONNX Runtime would convert ``b"a"`` to the text "b'a'".

    Raises:
        ComponentError: If they are not UTF-8 text.
    """
    try:
        texts = [value.decode() if isinstance(value, bytes) else str(value) for value in array.ravel()]
    except UnicodeDecodeError as error:
        received = f"input {name!r}: bytes that are not text ({error})"
        expected = "UTF-8 text, the only text that ONNX has"
        raise ComponentError(received, expected, "decode images and other binary features before the model") from error
    return np.array(texts, object).reshape(array.shape)


def _as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    return np.array([text.encode() for text in array.ravel()], object).reshape(array.shape)
