"""The `tflite` runtime: LiteRT's interpreter with XNNPACK, called by signature name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import Arrays, Runtime, TensorSpec


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a flatbuffer into the interpreter."""
    return TFLiteRuntime(model, signature, threads)


class TFLiteRuntime(Runtime):
    """A LiteRT model, called by input name.

    Integer inputs and outputs are shown and taken as the float32 they stand for: values are scaled, rounded to the
    nearest and clipped, so that every format answers the same call.
    """

    def __init__(self, model: Model, signature: str, threads: int | None) -> None:
        """Load it; see `tfopt.runtimes.load`."""
        from ai_edge_litert.interpreter import Interpreter

        try:
            self._interpreter = Interpreter(model_path=str(model.tflite), num_threads=threads)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise ComponentError(
                f"{model.tflite}: {error}",
                "a file that LiteRT can load",
                "convert it again; it may be truncated, or need --select-tf-ops",
            ) from error
        self._signature = _choose(self._interpreter.get_signature_list(), signature, model)
        # A file without signatures has nothing but tensor names to be called by.
        runner = self._interpreter.get_signature_runner(self._signature) if self._signature else None
        self._input_details = runner.get_input_details() if runner else _by_name(self._interpreter.get_input_details())
        self._output_details = (
            runner.get_output_details() if runner else _by_name(self._interpreter.get_output_details())
        )
        self.inputs = {name: _spec(detail) for name, detail in self._input_details.items()}
        self.outputs = {name: _spec(detail) for name, detail in self._output_details.items()}

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the interpreter, resizing its inputs when the batch changes."""
        resized = False
        for name, detail in self._input_details.items():
            if tuple(detail["shape"]) != arrays[name].shape:
                self._interpreter.resize_tensor_input(detail["index"], arrays[name].shape)
                detail["shape"] = np.array(arrays[name].shape)
                resized = True
        if resized:
            self._interpreter.allocate_tensors()
        for name, detail in self._input_details.items():
            self._interpreter.set_tensor(detail["index"], _quantized(arrays[name], detail))
        self._interpreter.invoke()
        return {
            name: _dequantized(self._interpreter.get_tensor(detail["index"]), detail)
            for name, detail in self._output_details.items()
        }


def _choose(signatures: dict[str, Any], wanted: str, model: Model) -> str | None:
    if not signatures:
        return None
    if wanted not in signatures:
        raise ComponentError(
            f"{model.uri}: no signature {wanted!r}", "one of its signatures", nearest(wanted, signatures)
        )
    return wanted


def _by_name(details: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {detail["name"]: detail for detail in details}


def _spec(detail: dict[str, Any]) -> TensorSpec:
    shape = detail.get("shape_signature", detail["shape"])
    dtype = "string" if detail["dtype"] is np.bytes_ else np.dtype(detail["dtype"]).name
    return TensorSpec("float32" if _scale(detail) else dtype, tuple(None if size < 0 else int(size) for size in shape))


def _scale(detail: dict[str, Any]) -> tuple[float, int] | None:
    scale, zero_point = detail["quantization"]
    return (scale, zero_point) if scale and detail["dtype"] is not np.float32 else None


def _quantized(array: NDArray[Any], detail: dict[str, Any]) -> NDArray[Any]:
    scale = _scale(detail)
    if not scale:
        return array
    limits = np.iinfo(detail["dtype"])
    levels = np.rint(array / scale[0]) + scale[1]
    return np.clip(levels, limits.min, limits.max).astype(detail["dtype"])


def _dequantized(array: NDArray[Any], detail: dict[str, Any]) -> NDArray[Any]:
    scale = _scale(detail)
    return ((array.astype(np.float32) - scale[1]) * np.float32(scale[0])) if scale else array
