"""Triton, if the machine has it with the backend of the model, with a gRPC client; check of its configuration.

Without Triton, a ``config.pbtxt`` is compared with the model's signature as Triton does it when it loads a model.

Reference: NVIDIA Triton Inference Server, "Model Repository" and "Model Configuration"; KServe,
"Open Inference Protocol".
"""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec, are_compatible
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays, Runtime
from tfopt.serving import triton_config
from tfopt.serving.servers import Client, FolderSettings, Server, ServerProgram, free_port, start_server
from tfopt.serving.triton_config import TYPES
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.storage.protobuf_messages import message_classes

NAME = "tritonserver"
NO_REASON = "none of its versions is loaded"
HINT = "fix what it names, or write config.pbtxt yourself"
# Only the fields that are read here. The text format has names instead of field numbers, so others can be ignored.
MESSAGES = {
    "Reshape": "repeated int64 shape = 1",
    "Tensor": "string name = 1; DataType data_type = 2; repeated int64 dims = 3; Reshape reshape = 4",
    "ModelConfig": "string name = 1; string platform = 2; string backend = 3; int64 max_batch_size = 4; "
    "repeated Tensor input = 5; repeated Tensor output = 6",
}


def find_program(format: str) -> str | None:
    """Return the path of the server; None if it, its backend for the format, or its client is not installed."""
    program, triton = shutil.which(NAME), FORMATS[format].triton
    client = importlib.util.find_spec("tritonclient") and importlib.util.find_spec("grpc")
    if not (program and triton and client and (_backends(program) / triton.backend).is_dir()):
        return None
    return program


@contextlib.contextmanager
def run_server(program: str, root: Path, signature: str, deadline: float) -> Iterator[Server]:
    """Start the server on the folder that holds ``root``, wait until it serves that model, and stop it at the end.

    The model is the only one in that folder, and its signature is in the configuration. See `start_server` for errors.
    """
    from tritonclient.grpc import InferenceServerClient

    port = free_port()
    flags = (
        f"--model-repository={root.parent}", f"--backend-directory={_backends(program)}", "--grpc-address=localhost",
        f"--grpc-port={port}", "--allow-http=false", "--allow-metrics=false", "--exit-on-error=false",
    )  # fmt: skip
    connection = InferenceServerClient(f"localhost:{port}")
    with start_server(program, *flags, not_ready=partial(_not_ready, connection, root.name), deadline=deadline):
        config = connection.get_model_config(root.name, client_timeout=10).config
        inputs, outputs = (_specs(side, batched=config.max_batch_size > 0) for side in (config.input, config.output))
        name = f"Triton {connection.get_server_metadata(client_timeout=10).version}"
        yield Server(name, inputs, outputs, partial(_client, port, config, outputs))


def _not_ready(connection: Any, name: str) -> str | None:
    """Return why the server does not serve the model yet; raise ComponentError if it failed to load it."""
    from tritonclient.utils import InferenceServerException

    try:
        models = connection.get_model_repository_index(client_timeout=10).models
    except InferenceServerException as error:
        return str(error.message())
    model = next((model for model in models if model.name == name), None)
    if model and model.state == "READY":
        return None
    reason = model.reason if model else ""  # the server responds after it has tried to load all models
    raise ComponentError(f"{NAME} does not serve it: {reason or NO_REASON}", "a model that it can load", HINT)


def _client(port: int, config: Any, specs: Mapping[str, TensorSpec]) -> Client:
    """Return a client for one thread: a connection of Triton's client is not thread-safe."""
    from tritonclient.grpc import InferenceServerClient, InferInput

    connection = InferenceServerClient(f"localhost:{port}")

    def send(arrays: Arrays) -> dict[str, NDArray[Any]]:
        inputs = []
        for tensor in config.input:
            array = reshape(arrays[tensor.name], tensor, tensor.dims)
            dtype = _dtype(tensor)
            inputs.append(InferInput(tensor.name, array.shape, "BYTES" if dtype == "STRING" else dtype))
            inputs[-1].set_data_from_numpy(array.astype(np.float32) if dtype == "BF16" else array)
        response = connection.infer(config.name, inputs, client_timeout=60)
        outputs = {}
        for tensor in config.output:
            array = reshape(response.as_numpy(tensor.name), tensor, tensor.reshape.shape)
            dtype = specs[tensor.name].dtype
            outputs[tensor.name] = array if dtype == "string" else array.astype(dtype, copy=False)
        return outputs

    def reshape(array: NDArray[Any], tensor: Any, dims: Any) -> NDArray[Any]:
        if not tensor.HasField("reshape"):
            return array
        return array.reshape((*array.shape[: int(config.max_batch_size > 0)], *dims))

    return send


def _backends(program: str) -> Path:
    """Return the folder of the backends, next to the folder of the program."""
    return Path(program).resolve().parent.parent / "backends"


def _specs(side: Any, *, batched: bool) -> dict[str, TensorSpec]:
    """Return the tensors of the model itself, without Triton's batching and reshaping."""
    dtypes = {name: dtype for dtype, name in TYPES.items()}
    specs = {}
    for tensor in side:
        dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        sizes = [None if size == -1 else int(size) for size in dims]
        specs[tensor.name] = TensorSpec(dtypes[_dtype(tensor)], (*([None] if batched else []), *sizes))
    return specs


def _dtype(tensor: Any) -> str:
    from tritonclient.grpc.model_config_pb2 import DataType

    return str(DataType.Name(tensor.data_type)).removeprefix("TYPE_")


def check_folder(model: Model, root: Path, expected: Runtime, test: FolderSettings) -> list[str]:
    """Write the configuration that `push_model` would write, or the user's at the destination, and check it."""
    file = root / triton_config.FILE
    own = Path(test.destination, file.name) if test.destination else None
    if own and own.is_file() and not (text := own.read_text()).startswith(triton_config.HEADER):
        file.write_text(text)
    else:
        triton_config.write_config(model, root, Scheduling(test.max_batch_size))
    largest = triton_config.largest_batch(model)
    return check_config(file, model.format, expected.inputs, expected.outputs, test.batch_size, largest)


def check_config(
    file: Path,
    format: str,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    batch_size: int,
    largest: int | None = None,
) -> list[str]:
    """Return everything that Triton would reject or serve with another signature, one line each.

    The configuration is in the folder with the name of the model. Triton may serve a part of the outputs. The largest
    batch of the model, if it has a limit, is ``largest``, that of a request ``batch_size``.
    """
    from google.protobuf import text_format

    try:
        config = text_format.Parse(file.read_text(), _create_message(), allow_unknown_field=True)
    except text_format.ParseError as error:
        return [f"config.pbtxt: {first_line(error)}"]
    faults = []
    if config.name and config.name != file.parent.name:
        faults.append(f"name {config.name!r} in a folder called {file.parent.name!r}")
    configured, expected = config.backend or config.platform, FORMATS[format].triton
    assert expected
    if configured and configured not in (expected.platform, expected.backend):
        faults.append(f"{configured!r} for a model of {expected.backend!r}")
    if any(spec.shape and spec.shape[0] is None for spec in inputs.values()) and 0 < config.max_batch_size < batch_size:
        faults.append(f"max_batch_size {config.max_batch_size}, for requests of {batch_size}")
    if largest and config.max_batch_size > largest:
        faults.append(f"max_batch_size {config.max_batch_size}, for an engine of batches up to {largest}")
    faults += _check_side("input", config.input, inputs, config.max_batch_size > 0, complete=True)
    faults += _check_side("output", config.output, outputs, config.max_batch_size > 0, complete=False)
    return [f"config.pbtxt: {fault}" for fault in faults]


def _check_side(
    side: str, tensors: Any, specs: Mapping[str, TensorSpec], batched: bool, *, complete: bool
) -> Iterator[str]:
    names = {tensor.name for tensor in tensors}
    for name in sorted(names & set(specs)) or specs:
        if batched and not (specs[name].ranked and specs[name].shape[:1] == (None,)):
            yield f"max_batch_size above 0, and {side} {name!r} is {specs[name]}, without an open batch"
    if not tensors:  # Triton then reads all of them from the model
        return
    if unknown := sorted(names - set(specs)):
        yield f"{side} {', '.join(unknown)}, where the model has {', '.join(sorted(specs))}"
    if complete and not unknown and (missing := sorted(set(specs) - names)):
        yield f"no {side} {', '.join(missing)}"
    for tensor in tensors:
        if tensor.name in specs:
            yield from _check_tensor(side, tensor, specs[tensor.name], batched)


def _check_tensor(side: str, tensor: Any, spec: TensorSpec, batched: bool) -> Iterator[str]:
    dtype = type(tensor).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
    if dtype != f"TYPE_{TYPES.get(spec.dtype)}":
        yield f"{side} {tensor.name!r} of {dtype}, not TYPE_{TYPES.get(spec.dtype)}"
    dims = list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    if not batched and not dims:
        yield f"{side} {tensor.name!r} has no axes, which Triton supports for batches only"
    sizes = [None if size == -1 else size for size in ([-1] if batched else []) + dims]
    if not are_compatible(spec, TensorSpec(spec.dtype, tuple(sizes))):
        yield f"{side} {tensor.name!r} of dims {dims}, where the model has {spec}"


def _create_message() -> Any:
    types = [f"TYPE_{name}" for name in ["INVALID", *TYPES.values()]]
    return message_classes("tfopt.triton", MESSAGES, enums={"DataType": types})["ModelConfig"]()


PROGRAM = ServerProgram(find_program, run_server, check_folder)
