"""The `tensorrt` runtime: an engine on the GPU, called by input name through TensorRT's own Python package."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays, Runtime
from tfopt.tensorrt import machine
from tfopt.tensorrt.profiles import Profile
from tfopt.tensorrt.tag import Tag

# TensorRT's names of types; what is missing here has no numpy form and is cast at the ends when it is converted.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


def load(model: Model, *, signature: str, threads: int | None) -> Runtime:
    """Load the engine; it has one signature, whatever that is called, and computes on no threads of ours.

    Raises:
        ComponentError: When this machine has no GPU or TensorRT, is not the one the engine was built for (its tag says
            which), or TensorRT cannot load it.
    """
    assert model.tensorrt
    here = machine.find()
    tag = Tag.beside(model.tensorrt)
    if tag:
        tag.check(here, model.tensorrt)
    return TensorRTRuntime(model.tensorrt, host_code=bool(tag and tag.version_compatible))


class TensorRTRuntime(Runtime):
    """A TensorRT engine, called by input name.

    A batch larger than the engine was built for is run in parts, one after the other.
    """

    def __init__(self, plan: Path, *, host_code: bool) -> None:
        """Load it; see `load`.

        Args:
            plan: The serialized engine.
            host_code: Whether code in it may run here, which version-compatible engines carry.
        """
        import tensorrt as trt

        from tfopt.tensorrt.device import Buffers
        from tfopt.tensorrt.messages import Messages, load_plugins

        self._messages = Messages()
        load_plugins()
        self._runtime = self._messages.started(trt.Runtime)
        self._runtime.engine_host_code_allowed = host_code
        self._engine = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        self._context: Any = self._engine.create_execution_context() if self._engine else None
        if self._context is None:
            raise ComponentError(
                f"{plan}: {self._messages.last('TensorRT gives no reason')}",
                "an engine that this TensorRT can load",
                "convert the model again on this machine; the file may be truncated",
            )
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        taken = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        for name in names:
            if self._engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                raise ComponentError(
                    f"{plan}: {name!r} is read on the host, where it decides over a shape",
                    "inputs and outputs that are values on the GPU",
                    "make the shape follow from other inputs' shapes in the model, or use export_onnx",
                )
        self.inputs = {name: self._spec(name) for name in taken}
        self.outputs = {name: self._spec(name) for name in names if name not in taken}
        self._profiles = [self._profile(index) for index in range(self._engine.num_optimization_profiles)]
        self._chosen = 0
        self._buffers = Buffers()

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run the engine, in parts where the batch is larger than its largest."""
        found = [self._run(part) for part in parts(arrays, self.inputs, self.outputs, self._profiles)]
        if len(found) == 1:
            return found[0]
        return {name: np.concatenate([part[name] for part in found]) for name in self.outputs}

    def close(self) -> None:
        """Give back the engine and its memory on the GPU."""
        self._buffers.close()
        del self._context, self._engine, self._runtime

    def _run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        stream = int(self._buffers.stream)
        self._choose(choice(self._profiles, arrays, self._chosen), stream)
        given = {name: np.asarray(arrays[name], order="C") for name in self.inputs}  # held until the stream has ended
        for name, array in given.items():
            if not self._context.set_input_shape(name, array.shape):
                raise ComponentError(
                    f"input {name!r} of shape {array.shape}: {self._messages.last('the engine does not take it')}",
                    f"{self.inputs[name]}, in {' or '.join(map(str, self._profiles))}",
                    "convert the model again, with shapes or largest_batch that take it",
                )
            self._context.set_tensor_address(name, self._buffers.upload(name, array))
        results = {name: self._result(name) for name in self.outputs}
        if not self._context.execute_async_v3(stream):
            raise ComponentError(
                f"the engine: {self._messages.last('it did not start')}",
                "an engine that runs",
                "convert the model again, and see nvidia-smi for free memory",
            )
        for name, array in results.items():
            self._buffers.download(name, array)
        self._buffers.wait()
        return results

    def _choose(self, profile: int, stream: int) -> None:
        if profile != self._chosen:
            self._context.set_optimization_profile_async(profile, stream)
            self._buffers.wait()
            self._chosen = profile

    def _result(self, name: str) -> NDArray[Any]:
        """An array for one output, with its place on the device."""
        shape = tuple(self._context.get_tensor_shape(name))
        if min(shape, default=0) < 0:
            raise ComponentError(
                f"output {name!r} of shape {shape} for these inputs",
                "sizes that follow from those of the inputs",
                "leave out what selects by value (NonZero, Where without branches, NMS), or use export_onnx",
            )
        array = np.empty(shape, DTYPES[self._engine.get_tensor_dtype(name).name])
        self._context.set_tensor_address(name, self._buffers.reserve(name, array.nbytes))
        return array

    def _spec(self, name: str) -> TensorSpec:
        kind = self._engine.get_tensor_dtype(name).name
        if kind not in DTYPES:
            raise ComponentError(
                f"{name!r} is {kind}", f"one of {', '.join(DTYPES)}, which numpy has too", "cast it inside the model"
            )
        return TensorSpec(
            DTYPES[kind], tuple(None if size < 0 else size for size in self._engine.get_tensor_shape(name))
        )

    def _profile(self, index: int) -> Profile:
        shapes = {name: self._engine.get_tensor_profile_shape(name, index) for name in self.inputs}
        return Profile({name: (tuple(a), tuple(b), tuple(c)) for name, (a, b, c) in shapes.items()})


def choice(profiles: list[Profile], arrays: Arrays, current: int) -> int:
    """Return which profile takes these inputs, the current one if it does.

    Raises:
        ComponentError: When none does.
    """
    shapes = {name: array.shape for name, array in arrays.items()}
    for index in sorted(range(len(profiles)), key=lambda index: index != current):
        if profiles[index].takes(shapes):
            return index
    raise ComponentError(
        f"inputs of shapes {', '.join(f'{name}: {shape}' for name, shape in shapes.items())}",
        f"what the engine was built for: {' or '.join(map(str, profiles))}",
        "convert the model again, with shapes or largest_batch that take these",
    )


def parts(
    arrays: Arrays, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], profiles: list[Profile]
) -> list[Arrays]:
    """Cut a batch into pieces that some profile takes, where every output has a free batch to join them by."""
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
