"""The `tflite` runtime: LiteRT's interpreter with XNNPACK."""

import os
import re
from collections.abc import Collection
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.runtime import Arrays, Runtime, signature_error


class _Detail(TypedDict):
    name: str
    index: int
    shape: NDArray[np.int32]
    shape_signature: NDArray[np.int32]
    dtype: Any
    quantization: tuple[float, int]


class StoredTensor(TypedDict):
    """A tensor as a file stores it; ``quantization`` are ``scale`` and ``zero_point`` of integers."""

    dtype: str
    shape: list[int | None]
    quantization: dict[str, float] | None


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load a flatbuffer into the interpreter."""
    return TFLiteRuntime(model, signature, threads)


def stored_tensors(model: Model) -> tuple[str | None, dict[str, StoredTensor], dict[str, StoredTensor]]:
    """Return the signature's name, None if the file has none, and the stored inputs and outputs, for app developers.

    Quantized tensors are described with their integer dtype, scale and zero point.

    Raises:
        ComponentError: If LiteRT cannot load the file.
    """
    runtime = TFLiteRuntime(model, "serving_default", None)
    inputs, outputs = _facts(runtime._inputs, runtime.inputs), _facts(runtime._outputs, runtime.outputs)
    return runtime.signature, inputs, outputs


class TFLiteRuntime(Runtime):
    """A LiteRT model.

    Quantized inputs and outputs have dtype float32 in this interface: values are scaled, rounded to nearest and
    clipped, so that all formats accept the same call.
    """

    def __init__(self, model: Model, signature: str, threads: int | None) -> None:
        """Load the model; see `tfopt.runtimes.load`."""
        from ai_edge_litert.interpreter import Interpreter

        self._file = model.tflite
        try:
            # LiteRT's own default is one thread; all other runtimes use every core by default.
            count = threads or len(os.sched_getaffinity(0))
            self._interpreter = Interpreter(model_path=str(model.tflite), num_threads=count)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise _refusal(model, str(error)) from error
        signatures = self._interpreter.get_signature_list()
        self.signature = signature if signatures else None
        self._runner = None
        ends = self._interpreter.get_input_details(), self._interpreter.get_output_details()
        inputs, outputs = ({detail["name"]: detail for detail in details} for details in ends)
        if signatures:  # without signatures, inputs and outputs are identified by tensor names
            runner = self._interpreter.get_signature_runner(_choose(signatures, signature, model))
            inputs, outputs = runner.get_input_details(), runner.get_output_details()
            # Tensor indices refer to the first subgraph, the only signature of most files; for several, use the runner.
            self._runner = runner if len(signatures) > 1 else None
        self._inputs, self._outputs = inputs, outputs
        self._shapes = {name: tuple(detail["shape"]) for name, detail in inputs.items()}
        self.inputs = {name: _spec(detail) for name, detail in inputs.items()}
        self.outputs = {name: _spec(detail) for name, detail in outputs.items()}

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the interpreter; tensors are reallocated only if a shape changed.

        Raises:
            ComponentError: If an op fails.
        """
        stored = {name: _quantized(arrays[name], detail) for name, detail in self._inputs.items()}
        try:
            raw = self._runner(**stored) if self._runner else self._invoke(stored)
        except RuntimeError as error:
            raise ComponentError(
                f"{self._file}: {first_line(error)}",
                "ops that can be computed with these inputs",
                "convert with another precision, as rounding may have made a divisor 0; or keep the named op "
                "in float, by recipe",
            ) from error
        return {name: _dequantized(raw[name], detail) for name, detail in self._outputs.items()}

    def _invoke(self, stored: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        shapes = {name: array.shape for name, array in stored.items()}
        if shapes != self._shapes:
            for name, shape in shapes.items():
                self._interpreter.resize_tensor_input(self._inputs[name]["index"], shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes
        for name, array in stored.items():
            self._interpreter.set_tensor(self._inputs[name]["index"], array)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(detail["index"]) for name, detail in self._outputs.items()}


def _refusal(model: Model, reason: str) -> ComponentError:
    flex = sorted(set(re.findall(r"\(Flex(\w+)\)", reason)))
    if "Flex delegate" in reason or "Regular TensorFlow ops" in reason:
        received = f"{model.tflite}: TensorFlow ops in it ({', '.join(flex) or 'select ops'})"
        expected = "a file of LiteRT's own ops: neither LiteRT nor TensorFlow 2.20 and later has the Flex delegate"
        fix = "run it where that delegate is linked in, or replace those ops and convert without --select-tf-ops"
        return ComponentError(received, expected, fix)
    fix = "convert it again; it may be truncated, or need custom ops"
    return ComponentError(f"{model.tflite}: {reason.strip()}", "a file that LiteRT can load", fix)


def _choose(signatures: Collection[str], name: str, model: Model) -> str:
    """Return the requested signature, or the only one: a file is often converted from one signature of several."""
    if len(signatures) == 1:
        return next(iter(signatures))
    if name not in signatures:
        raise signature_error(model, name, signatures)
    return name


def _spec(detail: _Detail) -> TensorSpec:
    shape = detail["shape_signature"] if len(detail["shape_signature"]) else detail["shape"]
    sizes = tuple(None if size < 0 else int(size) for size in shape)
    return TensorSpec("float32" if _scale(detail) else _dtype(detail), sizes)


def _dtype(detail: _Detail) -> str:
    return "string" if detail["dtype"] is np.bytes_ else np.dtype(detail["dtype"]).name


def _facts(details: dict[str, _Detail], specs: dict[str, TensorSpec]) -> dict[str, StoredTensor]:
    facts: dict[str, StoredTensor] = {}
    for name, detail in details.items():
        scale = _scale(detail)
        quantization = dict(zip(("scale", "zero_point"), map(float, scale), strict=True)) if scale else None
        facts[name] = {"dtype": _dtype(detail), "shape": list(specs[name].shape), "quantization": quantization}
    return facts


def _scale(detail: _Detail) -> tuple[float, int] | None:
    scale, zero_point = detail["quantization"]
    return (scale, zero_point) if scale and detail["dtype"] is not np.float32 else None


def _quantized(array: NDArray[Any], detail: _Detail) -> NDArray[Any]:
    scale = _scale(detail)
    if not scale:
        return array
    if np.isnan(array).any():
        expected = f"numbers: an {np.dtype(detail['dtype'])} input has no NaN"
        raise ComponentError(f"input {detail['name']!r}: NaN", expected, "replace missing values first")
    limits = np.iinfo(detail["dtype"])
    levels = np.rint(array / np.float32(scale[0])) + scale[1]
    clipped: NDArray[Any] = np.clip(levels, limits.min, limits.max).astype(detail["dtype"])
    return clipped


def _dequantized(array: NDArray[Any], detail: _Detail) -> NDArray[Any]:
    scale = _scale(detail)
    return ((array.astype(np.float32) - scale[1]) * np.float32(scale[0])) if scale else array
