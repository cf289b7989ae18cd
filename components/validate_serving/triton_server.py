"""Triton, if the machine has it with the backend of the model, with a gRPC client.

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

from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.external_server import free_port, start_server
from tfopt.components.validate_serving.servers import Client, Server, ServerProgram
from tfopt.components.validate_serving.triton_check import check_folder
from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays
from tfopt.serving.triton_config import TYPES

NAME = "tritonserver"
NO_REASON = "none of its versions is loaded"
HINT = "fix what it names, or write config.pbtxt yourself"


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
    """Return the reason why the server does not serve the model yet; None if it does.

    Raises:
        ComponentError: If the server failed to load the model, with its message.
    """
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


PROGRAM = ServerProgram(find_program, run_server, check_folder)
