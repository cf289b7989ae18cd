"""TensorFlow Serving's own model server, where the machine has it, asked by gRPC.

Reference: tensorflow.org/tfx/serving/api_rest and its `PredictionService`.
"""

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt import ending
from tfopt.child import last_lines
from tfopt.errors import ComponentError
from tfopt.graph.comparison import DEFAULT
from tfopt.runtimes import Arrays, TensorSpec
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
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            ending.bound(program, f"--port={port}", f"--model_name={root.name}", f"--model_base_path={root}"),
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        remote = Remote(f"localhost:{port}", root.name)
        try:
            while (said := _missing(remote)) is not None:
                if process.poll() is not None or time.monotonic() > until:
                    raise _refusal(log, said)
                time.sleep(0.1)
            yield remote
        finally:
            process.kill()
            process.wait()


def _missing(remote: Remote) -> str | None:
    """Why the server does not tell the signature; None when it does. An error of gRPC holds locks: it stays here."""
    import grpc

    try:
        remote.signature()
    except grpc.RpcError as error:
        return str(error.details())
    return None


def _refusal(log: Any, said: str) -> ComponentError:
    return ComponentError(
        f"{BINARY} does not serve it: {said}\n{last_lines(Path('/proc/self/fd', str(log.fileno())))}",
        "a version that becomes available",
        "see its last lines above",
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])
