"""Triton itself, where the machine has it with the backend of the model, asked by gRPC.

Reference: NVIDIA Triton Inference Server, "Model Repository" and "Model Configuration"; KServe,
"Open Inference Protocol".
"""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.external_server import free_port, started
from tfopt.components.validate_serving.triton_config import BACKENDS
from tfopt.errors import ComponentError
from tfopt.runtimes import Arrays
from tfopt.serving.triton_config import TYPES

BINARY = "tritonserver"
NONE = "none of its versions is loaded"
HINT = "mend what it names, or write config.pbtxt yourself"


def binary(format: str) -> str | None:
    """The path of the server; None where it, its backend for the format, or what it is asked with, is not installed."""
    program = shutil.which(BINARY)
    client = importlib.util.find_spec("tritonclient") and importlib.util.find_spec("grpc")
    return program if program and client and (_backends(program) / BACKENDS[format][1]).is_dir() else None


class Remote:
    """A model in a Triton server."""

    def __init__(self, address: str, name: str) -> None:
        """Connect; nothing is asked yet."""
        self._address, self._name = address, name
        self._asked = self._connection()

    def missing(self) -> str | None:
        """Why the server does not serve the model; None when it does.

        Raises:
            ComponentError: When it tried to load the model and could not, with what it says.
        """
        from tritonclient.utils import InferenceServerException

        try:
            index = self._asked.get_model_repository_index(client_timeout=10).models
        except InferenceServerException as error:
            return str(error.message())
        found = next((found for found in index if found.name == self._name), None)
        if found and found.state == "READY":
            return None
        said = found.reason if found else ""  # it answers when it has tried all that it was given
        raise ComponentError(f"{BINARY} does not serve it: {said or NONE}", "a model that it can load", HINT)

    def server(self) -> str:
        """Which server, and which version of it."""
        return f"Triton {self._asked.get_server_metadata(client_timeout=10).version}"

    def signature(self) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """The inputs and outputs as the server hands them to the model, its batch and reshaping undone."""
        config = self._config()
        batched = config.max_batch_size > 0
        return _specs(config.input, batched=batched), _specs(config.output, batched=batched)

    def client(self) -> "_Client":
        """What one thread asks by: a connection of Triton's client is not for several."""
        return _Client(self._connection(), self._config(), self.signature()[1])

    def _config(self) -> Any:
        return self._asked.get_model_config(self._name, client_timeout=10).config

    def _connection(self) -> Any:
        from tritonclient.grpc import InferenceServerClient

        return InferenceServerClient(self._address)


class _Client:
    """One connection."""

    def __init__(self, connection: Any, config: Any, outputs: dict[str, TensorSpec]) -> None:
        self._connection, self._config, self._outputs = connection, config, outputs

    def __call__(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Ask one request."""
        from tritonclient.grpc import InferInput

        sent = []
        for tensor in self._config.input:
            array = self._shaped(arrays[tensor.name], tensor, tensor.dims)
            kind = _kind(tensor)
            sent.append(InferInput(tensor.name, array.shape, "BYTES" if kind == "STRING" else kind))
            sent[-1].set_data_from_numpy(array.astype(np.float32) if kind == "BF16" else array)
        told = self._connection.infer(self._config.name, sent, client_timeout=60)
        answers = {}
        for tensor in self._config.output:
            array = self._shaped(told.as_numpy(tensor.name), tensor, tensor.reshape.shape)
            dtype = self._outputs[tensor.name].dtype
            answers[tensor.name] = array if dtype == "string" else array.astype(dtype, copy=False)
        return answers

    def _shaped(self, array: NDArray[Any], tensor: Any, dims: Any) -> NDArray[Any]:
        """Reshaped as the configuration says, where it does."""
        if not tensor.HasField("reshape"):
            return array
        return array.reshape((*array.shape[: int(self._config.max_batch_size > 0)], *dims))


@contextlib.contextmanager
def running(program: str, root: Path, until: float) -> Iterator[Remote]:
    """Start the server on the folder that holds ``root``, wait until it serves that, and stop it at the end.

    Args:
        program: The server.
        root: The folder called as the model is, alone in its own.
        until: When, by `time.monotonic`, it must be ready.

    Raises:
        ComponentError: With its last lines, when it ends or does not serve the model in time.
    """
    port = free_port()
    remote = Remote(f"localhost:{port}", root.name)
    words = (
        f"--model-repository={root.parent}", f"--backend-directory={_backends(program)}", "--grpc-address=localhost",
        f"--grpc-port={port}", "--allow-http=false", "--allow-metrics=false", "--exit-on-error=false",
    )  # fmt: skip
    with started(program, *words, missing=remote.missing, until=until):
        yield remote


def _backends(program: str) -> Path:
    """Where an installation keeps them: beside the folder of its program."""
    return Path(program).resolve().parent.parent / "backends"


def _specs(side: Any, *, batched: bool) -> dict[str, TensorSpec]:
    dtypes = {kind: dtype for dtype, kind in TYPES.items()}
    found = {}
    for tensor in side:
        dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        sizes = [None if size == -1 else int(size) for size in dims]
        found[tensor.name] = TensorSpec(dtypes[_kind(tensor)], (*([None] if batched else []), *sizes))
    return found


def _kind(tensor: Any) -> str:
    from tritonclient.grpc.model_config_pb2 import DataType

    return str(DataType.Name(tensor.data_type)).removeprefix("TYPE_")
