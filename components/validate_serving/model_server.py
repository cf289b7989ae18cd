"""TensorFlow Serving's own model server, where the machine has it, asked by gRPC.

Reference: tensorflow.org/tfx/serving/api_rest and its `PredictionService`.
"""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.external_server import free_port, started
from tfopt.graph.comparison import DEFAULT
from tfopt.runtimes import Arrays
from tfopt.serving.warm_up import request

BINARY = "tensorflow_model_server"


def binary() -> str | None:
    """The path of the model server; None where it, or what it is asked with, is not installed."""
    stubs = all(importlib.util.find_spec(package) for package in ("grpc", "tensorflow_serving"))
    return shutil.which(BINARY) if stubs else None


def specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """``TensorInfo`` by name, in tfopt's words."""
    import tensorflow as tf

    found = {}
    for name, info in sorted(infos.items()):
        shape = tf.TensorShape(info.tensor_shape)
        sizes = tuple(shape.as_list()) if shape.rank is not None else (None,)
        found[name] = TensorSpec(tf.as_dtype(info.dtype).name, sizes, ranked=shape.rank is not None)
    return found


class Remote:
    """A model behind a `PredictionService`."""

    def __init__(self, address: str, name: str) -> None:
        """Connect; nothing is asked yet."""
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._service = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(address, options))
        self._name = name

    def signature(self) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
        """The inputs and outputs of ``serving_default``, as the server tells them."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        asked.model_spec.name = self._name
        told = get_model_metadata_pb2.SignatureDefMap()
        self._service.GetModelMetadata(asked, timeout=10).metadata["signature_def"].Unpack(told)
        return specs(told.signature_def[DEFAULT].inputs), specs(told.signature_def[DEFAULT].outputs)

    def answer(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Ask one request; safe under threads."""
        import tensorflow as tf

        answered = self._service.Predict(request(dict(arrays), self._name), timeout=60)
        return {name: tf.make_ndarray(tensor) for name, tensor in answered.outputs.items()}


@contextlib.contextmanager
def running(program: str, root: Path, until: float) -> Iterator[Remote]:
    """Start the server on the versions below ``root``, wait until it serves one, and stop it at the end.

    Args:
        program: The server.
        root: The folder called as the model is.
        until: When, by `time.monotonic`, a version must be available; warm-up requests run before it is.

    Raises:
        ComponentError: With its last lines, when it ends or does not serve the model in time.
    """
    port = free_port()
    remote = Remote(f"localhost:{port}", root.name)
    words = (f"--port={port}", f"--model_name={root.name}", f"--model_base_path={root}")
    with started(program, *words, missing=lambda: _missing(remote), until=until):
        yield remote


def _missing(remote: Remote) -> str | None:
    """Why the server does not tell the signature; None when it does. An error of gRPC holds locks: it stays here."""
    import grpc

    try:
        remote.signature()
    except grpc.RpcError as error:
        return str(error.details())
    return None
