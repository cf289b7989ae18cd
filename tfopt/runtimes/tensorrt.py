"""The `tensorrt` runtime: a TensorRT engine on the GPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.runtimes.runtime import Arrays, Runtime
from tfopt.tensorrt import machine
from tfopt.tensorrt.device import Buffers
from tfopt.tensorrt.profiles import Profile
from tfopt.tensorrt.tag import CompatibilityTag

# TensorRT's names of dtypes; numpy lacks the others, so the conversion casts such inputs and outputs.
DTYPES = {"FLOAT": "float32", "HALF": "float16"}
DTYPES |= {name: name.lower() for name in ("INT8", "UINT8", "INT32", "INT64", "BOOL")}


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load the engine; it has a single signature, and computes on the GPU: name and threads are ignored.

    Raises:
        ComponentError: If this machine has no GPU or TensorRT, differs from the one in the engine's tag, or TensorRT
            cannot load the engine.
    """
    assert model.tensorrt
    here = machine.detect_machine()
    tag = CompatibilityTag.read(model.tensorrt)
    if tag:
        tag.check(here, model.tensorrt)
    return TensorRTRuntime(model.tensorrt, host_code=bool(tag and tag.version_compatible))


class TensorRTRuntime(Runtime):
    """A TensorRT engine.

    A batch larger than the engine's largest one is split and run in parts.
    """

    def __init__(self, plan: Path, *, host_code: bool) -> None:
        """Load the engine; see `load`. Version-compatible engines contain host code."""
        import tensorrt as trt

        from tfopt.tensorrt.messages import Messages, load_plugins  # imports TensorRT

        self._messages = Messages()
        load_plugins()
        self._runtime = self._messages.create(trt.Runtime)
        self._runtime.engine_host_code_allowed = host_code
        self._engine = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        self._context: Any = self._engine.create_execution_context() if self._engine else None
        if self._context is None:
            received = f"{plan}: {self._messages.last_error('TensorRT gives no reason')}"
            fix = "convert the model again on this machine; the file may be truncated"
            raise ComponentError(received, "an engine that this TensorRT can load", fix)
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        for name in names:
            if self._engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                received = f"{plan}: {name!r} is read on the host, where it determines a shape"
                fix = "compute the shape from other inputs' shapes in the model, or use export_onnx"
                raise ComponentError(received, "inputs and outputs that are values on the GPU", fix)
        self.inputs = {name: self._spec(name) for name in inputs}
        self.outputs = {name: self._spec(name) for name in names if name not in inputs}
        self._profiles: list[Profile] = []
        for index in range(self._engine.num_optimization_profiles):
            ranges = {name: self._engine.get_tensor_profile_shape(name, index) for name in inputs}
            self._profiles.append(Profile({name: (tuple(a), tuple(b), tuple(c)) for name, (a, b, c) in ranges.items()}))
        self._chosen = 0
        self._buffers = Buffers()

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the engine, in parts if the batch is larger than its largest one."""
        results = [self._run(part) for part in split_batch(arrays, self.inputs, self.outputs, self._profiles)]
        if len(results) == 1:
            return results[0]
        return {name: np.concatenate([part[name] for part in results]) for name in self.outputs}

    def close(self) -> None:
        """Release the engine and its GPU memory."""
        self._buffers.close()
        del self._context, self._engine, self._runtime

    def _run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        stream = int(self._buffers.stream)
        profile = select_profile(self._profiles, arrays, self._chosen)
        if profile != self._chosen:
            self._context.set_optimization_profile_async(profile, stream)
            self._buffers.wait()
            self._chosen = profile
        inputs = {name: np.asarray(arrays[name], order="C") for name in self.inputs}  # must live until `wait` returns
        for name, array in inputs.items():
            if not self._context.set_input_shape(name, array.shape):
                raise ComponentError(
                    f"input {name!r} of shape {array.shape}: {self._messages.last_error('the engine rejects it')}",
                    f"{self.inputs[name]}, in {' or '.join(map(str, self._profiles))}",
                    "convert the model again, with shapes or largest_batch that include it",
                )
            self._context.set_tensor_address(name, self._buffers.upload(name, array))
        results = {name: self._result(name) for name in self.outputs}
        if not self._context.execute_async_v3(stream):
            received = f"the engine: {self._messages.last_error('it did not start')}"
            fix = "convert the model again, and see nvidia-smi for free memory"
            raise ComponentError(received, "an engine that runs", fix)
        for name, array in results.items():
            self._buffers.download(name, array)
        self._buffers.wait()
        return results

    def _result(self, name: str) -> NDArray[Any]:
        shape = tuple(self._context.get_tensor_shape(name))
        if min(shape, default=0) < 0:
            received = f"output {name!r} of shape {shape} for these inputs"
            fix = "remove ops that select by value (NonZero, Where without branches, NMS), or use export_onnx"
            raise ComponentError(received, "sizes that are determined by those of the inputs", fix)
        array = np.empty(shape, DTYPES[self._engine.get_tensor_dtype(name).name])
        self._context.set_tensor_address(name, self._buffers.reserve(name, array.nbytes))
        return array

    def _spec(self, name: str) -> TensorSpec:
        kind = self._engine.get_tensor_dtype(name).name
        if kind not in DTYPES:
            expected = f"one of {', '.join(DTYPES)}, the dtypes that numpy has"
            raise ComponentError(f"{name!r} is {kind}", expected, "cast it inside the model")
        sizes = tuple(None if size < 0 else size for size in self._engine.get_tensor_shape(name))
        return TensorSpec(DTYPES[kind], sizes)


def select_profile(profiles: list[Profile], arrays: Arrays, current: int) -> int:
    """Return the index of a profile that contains these shapes, preferably the current one.

    Raises:
        ComponentError: If no profile contains them.
    """
    shapes = {name: array.shape for name, array in arrays.items()}
    for index in sorted(range(len(profiles)), key=lambda index: index != current):
        if profiles[index].contains(shapes):
            return index
    received = f"inputs of shapes {', '.join(f'{name}: {shape}' for name, shape in shapes.items())}"
    expected = f"shapes that the engine was built for: {' or '.join(map(str, profiles))}"
    raise ComponentError(received, expected, "convert the model again, with shapes or largest_batch that include these")


def split_batch(
    arrays: Arrays, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], profiles: list[Profile]
) -> list[Arrays]:
    """Split a batch into parts that a profile contains, if every output has a dynamic batch size to join them."""
    free = [name for name, spec in inputs.items() if spec.shape[:1] == (None,)]
    joined = all(spec.shape[:1] == (None,) for spec in outputs.values())
    rows = {len(arrays[name]) for name in free}
    most = max((profile.largest_batch(free) for profile in profiles), default=1)
    if not joined or len(rows) != 1 or max(rows) <= most:
        return [arrays]
    return [
        {name: array[start : start + most] if name in free else array for name, array in arrays.items()}
        for start in range(0, max(rows), most)
    ]
